import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { counted, dateTime } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { getSignals, isOver, type RunView } from "../../lib/runs.ts";
import { Empty, Failure, Text } from "../../ui/basics.tsx";

const readMs = 1_000;

/** What a run has beside its steps. No frame tells of it: it is read every second until the run ends. */
export function ReadBeside<Value>(props: {
  run: RunView;
  read: (runId: string, signal: AbortSignal) => Promise<Value>;
  children: (value: Value) => ComponentChildren;
}) {
  const { run, read, children } = props;
  const isLive = !isOver(run.status);
  const { value, error, reload } = useLoaded((signal) => read(run.id, signal), [run.id, run.status]);
  useEffect(() => {
    if (!isLive) return;
    const timer = setInterval(() => document.visibilityState === "visible" && reload(), readMs);
    return () => clearInterval(timer);
  }, [isLive]);
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  return value === undefined ? <p class="faint">Reading…</p> : children(value);
}

type SignalsView = Awaited<ReturnType<typeof getSignals>>;

/** What was sent to the run by name. */
export const Signals = ({ run }: { run: RunView }) => (
  <ReadBeside run={run} read={getSignals}>
    {(signals) => <Sent to={run} of={signals} />}
  </ReadBeside>
);

function Sent({ to: run, of: { signals, kept, hasMore } }: { to: RunView; of: SignalsView }) {
  if (signals.length === 0)
    return (
      <Empty
        title="Nothing was sent to this run"
        says="Signals that it is sent are listed here."
        docs="signals"
      />
    );
  return (
    <>
      {kept > 0 && (
        <p class="hint">{`${counted(kept, "signal")} kept: no step has waited for the name yet.`}</p>
      )}
      <ol class="attempts">
        {signals.map(({ number, name, isKept, data, sentBy, sentAt, stepId }) => (
          <li key={number}>
            <p class="attempt-head">
              <strong>{`Signal ${number}`}</strong>
              <Text of={name} in="code" />
              {isKept ? (
                <span>kept</span>
              ) : (
                <Text of={`taken by ${stepId}`} href={hrefOf(["runs", run.id], { step: stepId })} />
              )}
              <span class="number">{dateTime(sentAt)}</span>
              <Text of={`from ${sentBy}`} in="span" class="faint" />
            </p>
            {isKept && data !== undefined && <Text of={JSON.stringify(data)} in="code" class="log-fields" />}
          </li>
        ))}
      </ol>
      {hasMore && <p class="hint">Older signals are not listed.</p>}
    </>
  );
}
