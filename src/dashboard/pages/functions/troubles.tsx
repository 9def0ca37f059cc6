import type { Static } from "@sinclair/typebox";
import type { GroupOut } from "../../../domain/engine/errors/operations.ts";
import { rest } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { useFollowed, useLoaded } from "../../lib/hooks.ts";
import { hrefOf, queryOf } from "../../lib/router.ts";
import { Empty, Failure, Text, When } from "../../ui/basics.tsx";

type ErrorGroupData = Static<typeof GroupOut>;

const troublesShown = 8;
const dayMs = 86_400_000;
const messageChars = 300;

/** Failures that look alike, as the server groups them: those seen in the last day, seen last first. */
export function Troubles({ functionId }: { functionId?: string }) {
  const { value, error, reload } = useLoaded(
    (signal) => {
      const since = new Date(Date.now() - dayMs).toISOString();
      const asked = { function_id: functionId, since, limit: `${troublesShown}` };
      return rest<{ groups: ErrorGroupData[] }>(`/api/v1/errors${queryOf(asked)}`, { signal });
    },
    [functionId],
  );
  useFollowed(reload, { frames: "system.run.*.failed" });
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (value?.groups.length === 0) return <Empty title="Nothing failed in the last day" />;
  const hasNumbers = value?.groups.some(({ message }) => message.includes("#"));
  return (
    <>
      <ul class="troubles">
        {value?.groups.map((group) => (
          <li key={group.id}>
            <a
              class="trouble-runs number"
              href={hrefOf(["runs"], { error: group.id })}
              title="Failures so far"
            >
              {group.count === 0 ? "…" : count(group.count)}
            </a>
            <div class="trouble-text">
              <Text
                of={group.message.slice(0, messageChars) || group.code || "No message"}
                href={hrefOf(["runs", group.sample_run_id])}
              />
              {group.frame && <Text of={group.frame.slice(0, messageChars)} in="code" class="faint" />}
              <span class="faint">
                <Text of={group.function_id} />
                {", last "}
                <When at={group.last_seen_at} />
              </span>
            </div>
          </li>
        ))}
      </ul>
      {hasNumbers && <p class="hint">A # stands for what differs from run to run, such as a number.</p>}
    </>
  );
}
