import { counted, dateTime } from "../../lib/format.ts";
import { hrefOf } from "../../lib/router.ts";
import { getSignals, type RunView } from "../../lib/runs.ts";
import { Empty, Text } from "../../ui/basics.tsx";
import { ReadBeside } from "./read-beside.tsx";

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
