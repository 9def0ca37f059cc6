import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { useLoaded } from "../../lib/hooks.ts";
import { isOver, type RunView } from "../../lib/runs.ts";
import { Failure } from "../../ui/basics.tsx";

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
