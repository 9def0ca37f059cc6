import { useEffect } from "preact/hooks";
import { bytes, counted } from "../../lib/format.ts";
import { useLoaded } from "../../lib/hooks.ts";
import { getOutputs, isOver, type RunView } from "../../lib/runs.ts";
import { Empty, Failure, Section, Text } from "../../ui/basics.tsx";

const readMs = 1_000;

/** The ends of what the handler writes to its outputs. While the run goes on they are read every second. */
export function Outputs({ run }: { run: RunView }) {
  const isLive = !isOver(run.status);
  const { value, error, reload } = useLoaded((signal) => getOutputs(run.id, signal), [run.id, run.status]);
  useEffect(() => {
    const timer = isLive ? setInterval(reload, readMs) : undefined;
    return () => clearInterval(timer);
  }, [isLive]);
  if (error !== undefined) return <Failure error={error} onRetry={reload} />;
  if (!value) return <p class="faint">Reading…</p>;
  if (value.length === 0)
    return (
      <Empty
        title="Its handler wrote to no output"
        says="What a handler writes to an output is shown here."
        docs="outputs"
      />
    );
  return (
    <>
      {value.map(({ name, chunks, bytes: size, tail }) => (
        <Section key={name} title={`Output ${name}`}>
          <p class="faint">{`${counted(chunks, "chunk")}, ${bytes(size)}. What was written last:`}</p>
          <Text of={tail} in="p" class="log-text" />
        </Section>
      ))}
    </>
  );
}
