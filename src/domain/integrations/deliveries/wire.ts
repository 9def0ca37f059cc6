import { timestampOf } from "../../../kit/wkt.ts";
import type { LetterRow, ShownEndpoint } from "./service.ts";

const at = <Name extends string>(name: Name, instant: number | null) =>
  (instant === null ? {} : { [name]: timestampOf(instant) }) as {
    [Given in Name]?: ReturnType<typeof timestampOf>;
  };

export const toEndpoint = ({ row, secret }: ShownEndpoint) => ({
  id: row.id,
  name: row.name,
  url: row.url,
  pattern: row.pattern,
  filter: row.filter,
  status: row.status,
  disabledReason: row.disabled_reason,
  ...(secret !== undefined && { secret }),
  ...at("previousSecretExpiresAt", row.prev_expires_at),
  position: BigInt(row.position),
  behind: BigInt(Math.max(0, row.head - row.position)),
  attempts: row.attempts,
  failingEventId: row.failing_event_id ?? "",
  ...at("nextAttemptAt", row.attempts > 0 ? row.due_at : null),
  ...at("failingSince", row.failing_since),
  lastError: row.last_error ?? "",
  ...at("lastDeliveredAt", row.last_delivered_at),
  deadLetters: row.letters,
  createdAt: timestampOf(row.created_at),
  updatedAt: timestampOf(row.updated_at),
});

export const toEndpoints = (page: { endpoints: ShownEndpoint["row"][]; totalCount: number }) => ({
  endpoints: page.endpoints.map((row) => toEndpoint({ row })),
  totalCount: page.totalCount,
});

export const toLetter = (row: LetterRow) => ({
  endpointId: row.endpoint_id,
  eventId: row.event_id,
  eventName: row.event_name,
  sequence: BigInt(row.position),
  attempts: row.attempts,
  lastError: row.last_error,
  deadAt: timestampOf(row.dead_at),
  redelivering: row.due_at !== null,
});

export const toLetters = (page: { letters: LetterRow[]; totalCount: number }) => ({
  deadLetters: page.letters.map(toLetter),
  totalCount: page.totalCount,
});
