import { useEffect } from "preact/hooks";
import { dateTime } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { hrefOf } from "../../lib/router.ts";
import { getSignals, isOver, type RunView } from "../../lib/runs.ts";
import { Empty, Failure, Text } from "../../ui/basics.tsx";

const readMs = 1_000;

/** What was sent to the run by name. While the run goes on its page reads every second what came. */
export function Signals({ run }: { run: RunView }) {
  const isLive = !isOver(run.status);
  const { value, error, reload } = useLoaded((signal) => getSignals(run.id, signal), [run.id, run.status]);
  useEffect(() => {
    const timer = isLive ? setInterval(reload, readMs) : undefined;
    return () => clearInterval(timer);
  }, [isLive]);
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  if (value.signals.length === 0)
    return (
      <Empty
        title="Nothing was sent to this run"
        says="Signals that it is sent are listed here."
        docs="signals"
      />
    );
  return (
    <>
      {value.kept > 0 && <p class="hint">{`${value.kept} kept: no step has waited for them yet.`}</p>}
      <ol class="attempts">
        {value.signals.map(({ number, name, isKept, data, sentBy, sentAt, stepId }) => (
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
      {value.hasMore && <p class="hint">Older signals are not listed.</p>}
    </>
  );
}
