import type { Static } from "@sinclair/typebox";
import type { ItemOut } from "../../../domain/engine/repairs/operations.ts";
import type { RepairOut } from "../../../domain/engine/repairs/wire.ts";
import { rest } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useFollowed, usePages } from "../../lib/hooks.ts";
import { hrefOf, queryOf } from "../../lib/router.ts";
import { may } from "../../lib/session.ts";
import { Empty, Page, Text, When } from "../../ui/basics.tsx";
import { Opener } from "../../ui/dialog.tsx";
import { lookOf, Status } from "../../ui/status.tsx";
import { type Column, ReadTable } from "../../ui/table.tsx";
import { ReplayDialog } from "./replay-dialog.tsx";

/** What became of the runs of a repair, in the order in which it is shown. */
export const outcomes = ["done", "failed", "refused", "over", "undone", "pending"] as const;

/** A repair, as `GET /api/v1/repairs/{id}` says. */
export type RepairData = Static<typeof RepairOut>;

export type RepairItemData = Static<typeof ItemOut>;

export const totalOf = ({ counts }: RepairData): number =>
  outcomes.reduce((sum, outcome) => sum + (counts[outcome] ?? 0), 0);

export const isEnded = ({ status }: RepairData): boolean => status === "completed" || status === "stopped";

const listRepairs = (cursor: string, signal?: AbortSignal) =>
  rest<{ repairs: RepairData[]; next_cursor: string }>(`/api/v1/repairs${queryOf({ limit: "50", cursor })}`, {
    signal,
  });

const pathOf = (id: string) => `/api/v1/repairs/${encodeURIComponent(id)}`;

export const getRepair = (id: string, signal?: AbortSignal): Promise<RepairData> =>
  rest(pathOf(id), { signal });

export const listItems = (id: string, asked: { outcome: string; cursor: string }, signal?: AbortSignal) =>
  rest<{ items: RepairItemData[]; next_cursor: string }>(
    `${pathOf(id)}/items${queryOf({ limit: "100", ...asked })}`,
    { signal },
  );

export const steerRepair = (id: string, verb: "pause" | "continue" | "stop"): Promise<RepairData> =>
  rest(`${pathOf(id)}/${verb}`, { method: "POST", body: {} });

/** The net is closer while one works. */
export const workingMs = 5_000;
export const restingMs = 30_000;

export const actionWords: Record<string, string> = {
  cancel: "Cancel",
  resume: "Resume",
  rerun: "Run again",
  patch: "Patch",
  inject: "Inject",
  replay: "Replay",
};

/** How far a repair is, as a bar of its outcomes. */
export function Progress({ of }: { of: RepairData }) {
  const total = totalOf(of);
  const said = outcomes
    .filter((outcome) => of.counts[outcome] > 0)
    .map((outcome) => `${count(of.counts[outcome])} ${lookOf(outcome).word.toLowerCase()}`)
    .join(", ");
  return (
    <span class="progress" role="img" aria-label={said || "nothing yet"} title={said}>
      {outcomes.map((outcome) => (
        <span
          key={outcome}
          class={`progress-part ${lookOf(outcome).tone} ${outcome === "pending" ? "pending" : ""}`}
          style={{ width: `${total === 0 ? 0 : (of.counts[outcome] / total) * 100}%` }}
        />
      ))}
    </span>
  );
}

export function RepairsPage() {
  const read = usePages(async (cursor, signal) => {
    const { repairs, next_cursor } = await listRepairs(cursor, signal);
    return { rows: repairs, next: next_cursor };
  }, []);
  useFollowed(read.reload, {
    list: "repairs",
    everyMs: read.value?.every(isEnded) ? restingMs : workingMs,
  });
  return (
    <Page
      title="Repairs and replays"
      about="Bulk actions on runs"
      actions={
        may("functions:invoke") &&
        may("events:subscribe") && (
          <Opener icon="refresh" text="Replay events…">
            {(onClose) => <ReplayDialog onClose={onClose} />}
          </Opener>
        )
      }
    >
      <ReadTable
        read={read}
        label="Repairs"
        keyOf={({ id }) => id}
        columns={columns}
        empty={
          <Empty title="No repairs" docs="run-failed#many-at-once-repair-in-bulk">
            <p>
              {"Filter "}
              <a href={hrefOf(["runs"])}>runs</a>
              {" and resume or cancel all that match."}
            </p>
          </Empty>
        }
      />
    </Page>
  );
}

const columns: readonly Column<RepairData>[] = [
  {
    name: "Repair",
    of: ({ id, action }) => (
      <>
        <a href={hrefOf(["repairs", id])}>{actionWords[action] ?? action}</a>
        <code class="under">{id}</code>
      </>
    ),
  },
  { name: "Status", of: ({ status }) => <Status of={status} /> },
  { name: "Progress", of: (repair) => <Progress of={repair} /> },
  { name: "Runs", isNumber: true, of: (repair) => count(totalOf(repair)) },
  { name: "Reason", of: ({ reason }) => <Text of={reason} /> },
  { name: "Started", isNumber: true, of: ({ created_at }) => <When at={created_at} /> },
];
