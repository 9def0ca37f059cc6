import { useEffect, useState } from "preact/hooks";
import { type DryRunData, dryRun } from "../../lib/access.ts";
import { messageOf } from "../../lib/api.ts";
import { count } from "../../lib/format.ts";
import { Text } from "../../ui/basics.tsx";
import { Field, useFields } from "../../ui/dialog.tsx";
import { Status } from "../../ui/status.tsx";
import type { TypedPolicy } from "./policy-fields.tsx";

const pauseMs = 400;
/** Past calls that the policy is tried on: those of one week, at most as many as the server tries at once. */
const triedMs = 7 * 86_400_000;
const triedMax = 10_000;
const subjectsShown = 10;

/** The made-up call that the policy is tried on. */
const firstSample = { action: "events:emit", type: "event", resource: "order.placed", role: "developer" };

/** Tries the policy as it is typed: on a made-up call, and on what callers of the org did in a week. */
export function DryRun({ of }: { of: TypedPolicy }) {
  const [sample, field] = useFields(firstSample);
  const [found, setFound] = useState<{ answer?: DryRunData; error?: unknown }>({});
  const key = JSON.stringify([of, sample]);
  useEffect(() => {
    const over = new AbortController();
    const { action, type, resource, role } = sample;
    const body = {
      ...of,
      ...{ subject: { kind: "user", roles: [role] }, request: { action, type, resource } },
      ...{ last: triedMax, since: new Date(Date.now() - triedMs).toISOString() },
    };
    const look = () =>
      dryRun(body, over.signal).then(
        (answer) => setFound({ answer }),
        (error) => !over.signal.aborted && setFound({ error }),
      );
    const timer = setTimeout(look, pauseMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [key]);
  return (
    <>
      <div class="form form-pairs">
        <Field label="Action" {...field("action")} />
        <Field label="Role of the caller" {...field("role")} />
        <Field label="Type of the thing" {...field("type")} />
        <Field label="Name of the thing" {...field("resource")} />
      </div>
      <div class="dry-run" aria-live="polite">
        {found.error !== undefined && <Text of={messageOf(found.error)} in="p" class="form-error" />}
        {found.answer && <Answer of={found.answer} />}
      </div>
    </>
  );
}

function Answer({ of }: { of: DryRunData }) {
  const problem = of.compile_error ?? of.eval_error;
  return (
    <>
      <p>
        {"This call: "}
        <Status of={of.matched ? "denied" : "not_denied"} />
      </p>
      {problem !== undefined && <Text of={problem} in="p" class="form-error" />}
      {of.warnings?.map((warning) => (
        <Text key={warning} of={warning} in="p" class="issue" />
      ))}
      {of.past && (
        <>
          <p>
            {of.past.decisions < triedMax
              ? `Of the ${count(of.past.decisions)} audited calls of the last week`
              : `Of the newest ${count(of.past.decisions)} audited calls`}
            {` it would have denied ${count(of.past.denied)}.`}
          </p>
          {of.past.subjects.length > 0 && (
            <p class="hint">
              {"Of: "}
              <Text of={of.past.subjects.slice(0, subjectsShown).join(", ")} />
            </p>
          )}
        </>
      )}
    </>
  );
}
