import type { Static } from "@sinclair/typebox";
import type { ScheduleOut } from "../../domain/engine/schedules/operations.ts";
import { rest } from "../lib/api.ts";
import { count, counted, dateTime, instantOf, zoneName } from "../lib/format.ts";
import { useFollowed, useLoaded } from "../lib/hooks.ts";
import { hrefOf, queryOf } from "../lib/router.ts";
import { aboutRead, Page, Section, Text } from "../ui/basics.tsx";
import { RunStatus } from "../ui/status.tsx";
import { type Column, ReadTable } from "../ui/table.tsx";

/** The triggers of a new function are taken up within a second, and no frame says so. */
const readMs = 2_000;

type ScheduleData = Static<typeof ScheduleOut>;

/** Cron triggers of the environment, or of one function. */
function useSchedules(functionId?: string) {
  const read = useLoaded(
    async (signal) => {
      const path = `/api/v1/schedules${queryOf({ function_id: functionId })}`;
      return (await rest<{ schedules: ScheduleData[] }>(path, { signal })).schedules;
    },
    [functionId],
  );
  useFollowed(read.reload, { frames: "system.cron.>", everyMs: readMs });
  return read;
}

const ofFunction: Column<ScheduleData> = {
  name: "Function",
  of: ({ function_id }) => (
    <a href={hrefOf(["functions", function_id])}>
      <Text of={function_id} in="span" />
    </a>
  ),
};

const columns = (): Column<ScheduleData>[] => [
  {
    name: "Cron",
    of: ({ expression, event, error }) => (
      <>
        <Text of={expression} in="code" />
        {event && <Text of={event} in="span" class="under" />}
        {error && <Text of={error} in="span" class="under warn" />}
      </>
    ),
  },
  {
    name: `Next, ${zoneName()}`,
    of: ({ coming }) =>
      coming.length === 0 ? (
        <span class="faint">none: its function is not active</span>
      ) : (
        coming.map((at) => (
          <span key={at} class="slot">
            {dateTime(instantOf(at) ?? 0)}
          </span>
        ))
      ),
  },
  {
    name: "Last run",
    of: ({ last_at, last_run_id, last_status }) =>
      last_at === undefined ? (
        <span class="faint">none yet</span>
      ) : (
        <>
          {last_run_id !== undefined && last_status !== undefined && (
            <a href={hrefOf(["runs", last_run_id])}>
              <RunStatus of={last_status} />
            </a>
          )}
          <span class="slot">{dateTime(instantOf(last_at) ?? 0)}</span>
        </>
      ),
  },
  { name: "Fired", isNumber: true, of: ({ fired }) => count(fired) },
  {
    name: "Missed",
    isNumber: true,
    of: ({ missed }) => <span class={missed > 0 ? "warn" : ""}>{count(missed)}</span>,
  },
];

export const Schedules = ({ of }: { of: string }) => (
  <Section title="Its schedule">
    <ReadTable
      read={useSchedules(of)}
      keyOf={({ expression, event = "" }) => `${expression} ${event}`}
      columns={columns()}
      empty="It is taken up within a second"
    />
  </Section>
);

export function SchedulesPage() {
  const read = useSchedules();
  return (
    <Page
      title="Schedules"
      about={aboutRead(read, (all) => `${counted(all.length, "cron trigger")} of all functions`)}
    >
      <ReadTable
        read={read}
        keyOf={({ function_id, expression, event = "" }) => `${function_id} ${expression} ${event}`}
        columns={[ofFunction, ...columns()]}
        empty="No function has a cron trigger"
        docs="functions#schedules-cron"
        says="Give a function a trigger such as { cron: '0 9 * * *' }: each slot starts a run, on one node, once."
      />
    </Page>
  );
}
