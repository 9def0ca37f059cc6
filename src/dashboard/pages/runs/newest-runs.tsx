import type { ComponentChildren } from "preact";
import { useLive, useLoaded } from "../../lib/hooks.ts";
import { listRuns, type RunView } from "../../lib/runs.ts";
import { Failure, When } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";

/** The newest runs of a function or of an event, as they move. */
export function NewestRuns(props: {
  of: "functionId" | "eventId";
  id: string;
  limit: number;
  link: (run: RunView) => ComponentChildren;
  /** In place of no runs. */
  empty: ComponentChildren;
}) {
  const { of, id, limit, link, empty } = props;
  const { value, error, reload } = useLoaded((signal) => listRuns({ [of]: id }, { limit }, signal), [id]);
  useLive("system.run.*.*", { onFrame: ({ data }) => data[of] === id && reload(), onBack: reload });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (value?.runs.length === 0) return <>{empty}</>;
  return (
    <ul class="plain-list">
      {value?.runs.map((run) => (
        <li key={run.id}>
          <Status of={run.status} pauseReason={run.pauseReason} phase={run.phase} />
          {link(run)}
          <span class="faint">
            <When at={run.createdAt} />
          </span>
        </li>
      ))}
    </ul>
  );
}
