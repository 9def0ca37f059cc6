import type { Moment, RunView, StepView } from "../../lib/runs.ts";
import type { IconName } from "../../ui/icons.tsx";
import { lookOf, type Tone } from "../../ui/status.tsx";

export interface Segment {
  from: number;
  /** Undefined: it goes on. */
  to: number | undefined;
  tone: Tone;
  about: string;
  /** What is to come, such as the rest of a sleep. */
  isAhead?: boolean;
}

/** One line of the waterfall. */
export interface WaterfallLine {
  key: string;
  name: string;
  about: string;
  icon: IconName;
  level: number;
  step?: StepView;
  segments: readonly Segment[];
}

/** The run's status from a moment on; other moments do not change it. */
const statusAfter: Record<string, readonly [status: string, pauseReason?: string]> = {
  "run.created": ["waiting_for_capacity"],
  "run.started": ["running"],
  "run.retrying": ["waiting"],
  "run.retried": ["waiting_for_capacity"],
  "run.slept": ["paused", "sleep"],
  "run.waiting": ["paused", "wait_event"],
  "run.invoking": ["paused", "invoke"],
  "run.paused": ["paused", "injection"],
  "run.woken": ["waiting_for_capacity"],
  "run.resumed": ["waiting_for_capacity"],
  "run.lease_expired": ["waiting_for_capacity"],
  "run.released": ["waiting_for_capacity"],
  "run.compensating": ["compensating"],
  "run.restored": ["waiting_for_capacity"],
  "run.completed": ["completed"],
  "run.failed": ["failed"],
  "run.cancelled": ["cancelled"],
};

const ended = new Set(["completed", "failed", "cancelled"]);

function runSegments(run: RunView, moments: readonly Moment[]): Segment[] {
  const segments: Segment[] = [];
  let last: Segment | undefined;
  const changes = moments.filter(({ type }) => statusAfter[type]);
  if (changes.length === 0) {
    const { tone, word } = lookOf(run.status, run.pauseReason);
    return [{ from: run.createdAt, to: run.endedAt, tone, about: word }];
  }
  for (const { type, at } of changes) {
    const [status, pauseReason] = statusAfter[type]!;
    if (last) last.to = at;
    if (ended.has(status)) {
      last = undefined;
      continue;
    }
    const { tone, word } = lookOf(status, pauseReason);
    last = { from: at, to: undefined, tone, about: word };
    segments.push(last);
  }
  if (last && run.endedAt !== undefined) last.to = run.endedAt;
  return segments;
}

/** Each attempt from its first start to its end, where there was more than one. */
function attemptLines(moments: readonly Moment[]): WaterfallLine[] {
  const spans: { from: number; to: number | undefined; tone: Tone; about: string }[] = [];
  let open: (typeof spans)[number] | undefined;
  for (const { type, at } of moments) {
    if (type === "run.started" && !open) {
      open = { from: at, to: undefined, tone: "busy", about: "Running" };
      spans.push(open);
    }
    const end = {
      "run.retrying": "bad",
      "run.failed": "bad",
      "run.completed": "good",
      "run.cancelled": "off",
    }[type];
    if (open && end) {
      open.to = at;
      open.tone = end as Tone;
      open.about = type === "run.retrying" ? "Failed, tried again" : lookOf(type.slice("run.".length)).word;
      open = undefined;
    }
  }
  if (spans.length < 2) return [];
  return spans.map((span, index) => ({
    key: `attempt-${index + 1}`,
    name: `Attempt ${index + 1}`,
    about: span.about,
    icon: "refresh",
    level: 1,
    segments: [span],
  }));
}

const stepIcons: Record<string, IconName> = {
  invoke: "step",
  sleep: "moon",
  wait_for_event: "clock",
  compensate: "undo",
  invoke_function: "child",
};

function stepLine(step: StepView): WaterfallLine {
  const { tone, word } = lookOf(step.status === "waiting" ? "waits" : step.status);
  const from = step.startedAt ?? step.endedAt ?? 0;
  const isOpen = step.endedAt === undefined || step.status === "sleeping";
  const segments: Segment[] = [{ from, to: isOpen ? undefined : step.endedAt, tone, about: word }];
  const until = step.status === "sleeping" ? step.sleepUntil : isOpen ? step.waitTimeout : step.retryAt;
  if (until !== undefined) segments.push({ from, to: until, tone, about: "Planned", isAhead: true });
  return {
    key: step.stepId,
    name: step.name,
    about: word,
    icon: stepIcons[step.type] ?? "step",
    level: step.type === "compensate" ? 2 : 1,
    step,
    segments,
  };
}

/** The lines of the waterfall: the run, its attempts, its steps in the order of their start. */
export function linesOf(
  run: RunView,
  steps: readonly StepView[],
  moments: readonly Moment[],
): WaterfallLine[] {
  const byStart = [...steps].sort(
    (one, other) => (one.startedAt ?? 0) - (other.startedAt ?? 0) || one.sequence - other.sequence,
  );
  return [
    {
      ...{ key: "run", name: run.functionId, about: lookOf(run.status, run.pauseReason).word },
      ...{ icon: "runs", level: 0, segments: runSegments(run, moments) },
    },
    ...attemptLines(moments),
    ...byStart.map(stepLine),
  ];
}

/** When the picture begins and ends. A sleep far beyond the work so far is cut to keep the work readable. */
export function extentOf(
  run: RunView,
  lines: readonly WaterfallLine[],
  now: number,
): { from: number; to: number } {
  const from = run.createdAt;
  const to = run.endedAt ?? now;
  let last = to;
  for (const { segments } of lines)
    for (const segment of segments) last = Math.max(last, segment.isAhead ? 0 : (segment.to ?? now));
  return { from, to: Math.max(last, from + 10) };
}
