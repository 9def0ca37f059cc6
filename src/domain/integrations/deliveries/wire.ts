import { WebhookDeadLetterSchema, WebhookEndpointSchema } from "../../../gen/svc/v1/webhook_pb.ts";
import { fieldsFor } from "../../../kit/message-fields.ts";
import { timestampOf } from "../../../kit/wkt.ts";
import type { LetterRow, ShownEndpoint } from "./service.ts";

const ofEndpoint = fieldsFor(WebhookEndpointSchema);
const ofLetter = fieldsFor(WebhookDeadLetterSchema);

export const toEndpoint = ({ row, secret }: ShownEndpoint) => ({
  ...ofEndpoint(row, "id name url pattern filter status disabled_reason position attempts failing_event_id"),
  ...ofEndpoint(row, "failing_since last_error last_delivered_at created_at updated_at"),
  ...(secret !== undefined && { secret }),
  ...(row.prev_expires_at !== null && { previousSecretExpiresAt: timestampOf(row.prev_expires_at) }),
  ...(row.attempts > 0 && { nextAttemptAt: timestampOf(row.due_at) }),
  ...{ behind: BigInt(Math.max(0, row.head - row.position)), deadLetters: row.letters },
});

export const toEndpoints = (page: { endpoints: ShownEndpoint["row"][]; totalCount: number }) => ({
  endpoints: page.endpoints.map((row) => toEndpoint({ row })),
  totalCount: page.totalCount,
});

export const toLetter = (row: LetterRow) => ({
  ...ofLetter(row, "endpoint_id event_id event_name attempts last_error dead_at"),
  ...{ sequence: BigInt(row.position), redelivering: row.due_at !== null },
});

export const toLetters = (page: { letters: LetterRow[]; totalCount: number }) => ({
  deadLetters: page.letters.map(toLetter),
  totalCount: page.totalCount,
});
