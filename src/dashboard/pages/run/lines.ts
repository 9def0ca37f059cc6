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
  "run.stranded": ["paused", "deployment_gone"],
  "run.requeued": ["waiting_for_capacity"],
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

/** As people call a step: `undo charge` for the compensation of `charge`. */
export const titleOf = ({ type, name }: Pick<StepView, "type" | "name">): string =>
  type === "compensate" ? `undo ${name.replace(/^compensate:/, "")}` : name;

/** A branch of a `parallel` or `map` that a step belongs to. */
interface StepBranch {
  /** Of its group. */
  id: string;
  name: string;
  index: string;
}

const ownKind = new Set(["compensate", "publish"]);
/** Deeper branches stand in the group above them. */
const levelsMax = 4;

/** The branches around a step, outermost first: `run:reserve:2:charge:0` is in the third of `reserve`. */
export function branchesOf(runId: string, stepId: string): StepBranch[] {
  const [run, ...parts] = stepId.match(/(?:\\.|[^\\:])+/g) ?? [];
  const names = parts.slice(0, -1);
  if (run !== runId || names.length < 3) return [];
  if (names.length % 2 === 0 && !ownKind.has(names.splice(-2, 1)[0]!)) return [];
  const branches: StepBranch[] = [];
  for (let at = 0; at + 2 < names.length && branches.length < levelsMax; at += 2) {
    const [name, index] = [names[at]!, names[at + 1]!];
    if (!/^\d+$/.test(index)) return [];
    const id = [run, ...names.slice(0, at + 1)].join(":");
    branches.push({ id, name: name.replaceAll(/\\(.)/g, "$1"), index });
  }
  return branches;
}

interface BranchedStep {
  line: WaterfallLine;
  branches: readonly StepBranch[];
}

const named = (name: string, branch: StepBranch | undefined) => (branch ? `${name} [${branch.index}]` : name);

/** Steps in the order of their start, those of one group together where its first stands. */
function grouped(steps: readonly BranchedStep[], level: number): WaterfallLine[] {
  const keyOf = ({ line, branches }: BranchedStep) => {
    const branch = branches[level - 1];
    return branch ? `group ${branch.id}` : `step ${line.key}`;
  };
  return [...Map.groupBy(steps, keyOf)].flatMap(([key, own]) =>
    own[0]!.branches[level - 1] ? groupLines(key, own, level) : own.map(({ line }) => line),
  );
}

/** A group from the start of its first step to the end of its last, and its steps. */
function groupLines(key: string, own: readonly BranchedStep[], level: number): WaterfallLine[] {
  const [first] = own;
  const segment: Segment = { from: Number.POSITIVE_INFINITY, to: 0, tone: "good", about: "" };
  const indexes = new Set<string>();
  for (const { line, branches } of own) {
    const { from, to, tone } = line.segments[0]!;
    segment.from = Math.min(segment.from, from);
    segment.to = to === undefined || segment.to === undefined ? undefined : Math.max(segment.to, to);
    if (tone === "bad") segment.tone = "bad";
    indexes.add(branches[level - 1]!.index);
  }
  if (segment.to === undefined) segment.tone = "busy";
  segment.about = indexes.size === 1 ? "1 branch" : `${indexes.size} branches`;
  const name = named(first!.branches[level - 1]!.name, first!.branches[level - 2]);
  const head: WaterfallLine = {
    ...{ key, name, about: segment.about, icon: "batches", level },
    segments: [segment],
  };
  return [head, ...grouped(own, level + 1)];
}

function stepLine(step: StepView, branches: readonly StepBranch[]): WaterfallLine {
  const { tone, word } = lookOf(step.status === "waiting" ? "waits" : step.status);
  const from = step.startedAt ?? step.endedAt ?? 0;
  const isOpen = step.endedAt === undefined || step.status === "sleeping";
  const segments: Segment[] = [{ from, to: isOpen ? undefined : step.endedAt, tone, about: word }];
  const until = step.status === "sleeping" ? step.sleepUntil : isOpen ? step.waitTimeout : step.retryAt;
  if (until !== undefined) segments.push({ from, to: until, tone, about: "Planned", isAhead: true });
  return {
    key: step.stepId,
    name: named(titleOf(step), branches.at(-1)),
    about: word,
    icon: stepIcons[step.type] ?? "step",
    level: branches.length + (step.type === "compensate" ? 2 : 1),
    step,
    segments,
  };
}

/** The lines of the waterfall: the run, its attempts, its steps as they began, parallel ones in groups. */
export function linesOf(
  run: RunView,
  steps: readonly StepView[],
  moments: readonly Moment[],
): WaterfallLine[] {
  const byStart = [...steps].sort(
    (one, other) => (one.startedAt ?? 0) - (other.startedAt ?? 0) || one.sequence - other.sequence,
  );
  const branched = byStart.map((step): BranchedStep => {
    const branches = branchesOf(run.id, step.stepId);
    return { branches, line: stepLine(step, branches) };
  });
  return [
    {
      ...{ key: "run", name: run.functionId, about: lookOf(run.status, run.pauseReason).word },
      ...{ icon: "runs", level: 0, segments: runSegments(run, moments) },
    },
    ...attemptLines(moments),
    ...grouped(branched, 1),
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
