import type { Static } from "@sinclair/typebox";
import type { AuditEvent } from "../../../domain/record/history/operations.ts";
import { rest } from "../../lib/api.ts";
import { clockTime, dateTime, duration, instantOf } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import type { Moment, RunView } from "../../lib/runs.ts";
import { Empty, Failure, Text } from "../../ui/basics.tsx";
import { JsonView } from "../../ui/json-view.tsx";

/** Every entry of the run's history; each leads to the run as it was then. */
export function History({ run, moments }: { run: RunView; moments: readonly Moment[] }) {
  if (moments.length === 0) return <Empty title="No history is kept for this run" />;
  return (
    <ol class="moments">
      {moments.map(({ id, type, summary, stepName, at, significant }) => (
        <li key={id} class={`moment ${significant ? "" : "minor"}`}>
          <a
            class="moment-time number"
            href={hrefOf(["runs", run.id], { at: new Date(at).toISOString() })}
            title={`The run as it was at ${dateTime(at)}`}
          >
            {clockTime(at)}
          </a>
          <span class="moment-after number">{`+${duration(at - run.createdAt)}`}</span>
          <code class="moment-type">{type}</code>
          <Text of={summary || stepName} in="span" class="moment-text" />
        </li>
      ))}
    </ol>
  );
}

type TrailRow = Static<typeof AuditEvent>;

const rowsShown = 100;

/** What the audit trail has of the run. */
export function Audit({ runId }: { runId: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => {
      const query = new URLSearchParams({ run_id: runId, limit: `${rowsShown}` });
      return rest<{ events: TrailRow[] }>(`/api/v1/audit?${query}`, { signal });
    },
    [runId],
  );
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  if (value.events.length === 0) return <Empty title="The audit has nothing of this run" />;
  return (
    <ol class="audit">
      {value.events.map(({ id, event_type, payload, created_at }) => (
        <li key={id}>
          <details>
            <summary>
              <span class="number">{dateTime(instantOf(created_at) ?? 0)}</span>
              <code>{event_type}</code>
            </summary>
            <JsonView value={payload} what="payload" />
          </details>
        </li>
      ))}
    </ol>
  );
}
