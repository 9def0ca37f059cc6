import { clockTime, counted, dateTime } from "../../lib/format.ts";
import { getLogs, type RunView } from "../../lib/runs.ts";
import { Empty, Text } from "../../ui/basics.tsx";
import { ReadBeside } from "./read-beside.tsx";

type LogsView = Awaited<ReturnType<typeof getLogs>>;

/** What the handler wrote. */
export const Logs = ({ run }: { run: RunView }) => (
  <ReadBeside run={run} read={getLogs}>
    {(logs) => <Lines of={logs} />}
  </ReadBeside>
);

function Lines({ of: { lines, leftOut } }: { of: LogsView }) {
  if (lines.length === 0)
    return <Empty title="Its handler wrote nothing" says="What a handler writes to its log is kept here." />;
  return (
    <>
      <ol class="log-lines">
        {lines.map(({ at, level, text, fields, step, attempt }, place) => (
          <li key={place} class={`log-line level-${level}`}>
            <time class="number" title={`${dateTime(at)}, attempt ${attempt}`}>
              {clockTime(at)}
            </time>
            <span class="log-level">{level}</span>
            {step !== "" && <Text of={step} in="code" />}
            <Text of={text} in="span" class="log-text" />
            {fields !== undefined && <Text of={JSON.stringify(fields)} in="code" class="log-fields" />}
          </li>
        ))}
      </ol>
      {leftOut > 0 && (
        <p class="hint">{`Left out, beyond what is kept of a run: ${counted(leftOut, "line")}`}</p>
      )}
    </>
  );
}
