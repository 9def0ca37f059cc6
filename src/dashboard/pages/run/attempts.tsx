import { counted, dateTime, duration } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { type AttemptView, getTries, type RunView, type StepView } from "../../lib/runs.ts";
import { Empty, Text } from "../../ui/basics.tsx";
import { Status } from "../../ui/status.tsx";

const lasting = (from: number | undefined, to: number | undefined): string =>
  from === undefined || to === undefined ? "–" : duration(to - from);

/** Every attempt of the run: who had it, how it ended, and how long the next one waited. */
export function Attempts({ run, attempts }: { run: RunView; attempts: readonly AttemptView[] }) {
  if (attempts.length === 0) return <Empty title="No worker has begun this run yet" />;
  return (
    <ol class="attempts">
      {attempts.map(({ number, workerId, deployment, startedAt, endedAt, outcome, error, ...more }) => (
        <li key={`${number} ${startedAt}`}>
          <p class="attempt-head">
            <strong>{`Attempt ${number}`}</strong>
            <Status of={outcome || run.status} pauseReason={run.pauseReason} />
            <span class="number">{dateTime(startedAt)}</span>
            <span class="number">{lasting(startedAt, endedAt)}</span>
            {workerId !== "" && <Text of={workerId} in="code" />}
            {deployment !== "" && <Text of={`deployment ${deployment}`} in="span" class="faint" />}
          </p>
          {error && <Text of={error.message} in="p" class="error-line" />}
          {more.lost > 0 && <p class="faint">{`Its worker was lost ${counted(more.lost, "time")}.`}</p>}
          {more.executions > 1 && (
            <p class="faint">{`Its handler was entered ${counted(more.executions, "time")}.`}</p>
          )}
          {more.retryInMs !== undefined && (
            <p class="faint">{`The next attempt was due ${duration(more.retryInMs)} later.`}</p>
          )}
        </li>
      ))}
    </ol>
  );
}

/** The tries of a step that failed. */
export function Tries({ run, step }: { run: RunView; step: StepView }) {
  const { value = [] } = useLoaded(
    (signal) => getTries(run.id, step.stepId, signal),
    [run.id, step.stepId, step.status, step.tries],
  );
  if (value.length === 0) return null;
  return (
    <>
      <h3>Tries that failed</h3>
      <ol class="attempts">
        {value.map(({ number, attempt, startedAt, endedAt, error, retryAt }) => (
          <li key={`${attempt} ${number} ${endedAt}`}>
            <p class="attempt-head">
              <strong>{`Try ${number}`}</strong>
              <span class="faint">{`attempt ${attempt}`}</span>
              <span class="number">{endedAt === undefined ? "–" : dateTime(endedAt)}</span>
              <span class="number">{lasting(startedAt, endedAt)}</span>
            </p>
            {error && <Text of={error.message} in="p" class="error-line" />}
            {retryAt !== undefined && <p class="faint">{`Tried again at ${dateTime(retryAt)}.`}</p>}
          </li>
        ))}
      </ol>
    </>
  );
}
