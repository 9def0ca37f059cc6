import { useEffect } from "preact/hooks";
import { clockTime, dateTime } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { getLogs, isOver, type RunView } from "../../lib/runs.ts";
import { Empty, Failure, Text } from "../../ui/basics.tsx";

const readMs = 1_000;

/** What the handler wrote. While the run goes on its page reads every second what came. */
export function Logs({ run }: { run: RunView }) {
  const isLive = !isOver(run.status);
  const { value, error, reload } = useLoaded((signal) => getLogs(run.id, signal), [run.id, run.status]);
  useEffect(() => {
    const timer = isLive ? setInterval(reload, readMs) : undefined;
    return () => clearInterval(timer);
  }, [isLive]);
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  if (value.lines.length === 0)
    return <Empty title="Its handler wrote nothing" says="What a handler writes to its log is kept here." />;
  return (
    <>
      <ol class="log-lines">
        {value.lines.map(({ at, level, text, fields, step, attempt }, place) => (
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
      {value.leftOut > 0 && <p class="hint">{`${value.leftOut} lines more were written than are kept.`}</p>}
    </>
  );
}
