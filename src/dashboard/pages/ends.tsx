import type { Static } from "@sinclair/typebox";
import { useMemo, useRef } from "preact/hooks";
import type { MinuteRates } from "../../domain/record/flow/operations.ts";
import { rest } from "../lib/api.ts";
import { count, instantOf } from "../lib/format.ts";
import { useLive, useLoaded, useNet, useTick } from "../lib/hooks.ts";
import { Section } from "../ui/basics.tsx";
import { TimeChart } from "../ui/time-chart.tsx";

const words = ["completed", "failed", "cancelled"] as const;
type EndWord = (typeof words)[number];
type EndsBucket = Record<EndWord, number>;

const isEnd = (word: string): word is EndWord => (words as readonly string[]).includes(word);
const none: EndsBucket = { completed: 0, failed: 0, cancelled: 0 };

/** Ends of runs by the time they were heard of, in buckets that move on. */
class HeardEnds {
  readonly #counts = new Map<number, EndsBucket>();
  readonly #bucketMs: number;
  readonly #buckets: number;

  constructor({ bucketMs, buckets }: ChartSpan) {
    this.#bucketMs = bucketMs;
    this.#buckets = buckets;
  }

  add(ending: EndWord): void {
    const at = Math.floor(Date.now() / this.#bucketMs);
    const bucket = this.#counts.get(at) ?? { ...none };
    bucket[ending]++;
    this.#counts.set(at, bucket);
    for (const key of this.#counts.keys()) if (key < at - this.#buckets) this.#counts.delete(key);
  }

  in(at: number): EndsBucket {
    return this.#counts.get(Math.floor(at / this.#bucketMs)) ?? none;
  }
}

interface ChartSpan {
  bucketMs: number;
  buckets: number;
}

const live: ChartSpan = { bucketMs: 2_000, buckets: 60 };
const hour: ChartSpan = { bucketMs: 60_000, buckets: 60 };

type MinuteData = Static<typeof MinuteRates>["minutes"][number];

/** Runs that ended: as the page hears of them, and in the minutes before it was opened. */
export function Ends() {
  const heard = useMemo(() => [new HeardEnds(live), new HeardEnds(hour)] as const, []);
  const openedAt = useMemo(() => Date.now(), []);
  useLive("system.run.*.*", {
    onFrame({ topic }) {
      const word = topic.slice(topic.lastIndexOf(".") + 1);
      if (isEnd(word)) for (const one of heard) one.add(word);
    },
  });
  const read = (signal: AbortSignal) =>
    rest<{ minutes: MinuteData[] }>("/api/v1/overview/rates", { signal }).then(({ minutes }) => minutes);
  const { value: minutes = [], reload } = useLoaded(read, []);
  /** What ended before the page was open, as the first answer says it. */
  const before = useRef<{ minutes: ReadonlyMap<number | undefined, MinuteData>; heard: EndsBucket } | null>(
    null,
  );
  useNet(reload);
  const counted = new Map(minutes.map((one) => [instantOf(one.at), one]));
  // The server's news come later, and the page missed those before it opened: each count is a lower bound.
  const ofMinute = (at: number): EndsBucket => {
    const own = heard[1].in(at);
    const told = counted.get(at);
    return {
      completed: Math.max(own.completed, told?.runs_completed ?? 0),
      failed: Math.max(own.failed, told?.runs_failed ?? 0),
      cancelled: Math.max(own.cancelled, told?.runs_cancelled ?? 0),
    };
  };
  const openedMinute = Math.floor(openedAt / hour.bucketMs) * hour.bucketMs;
  if (minutes.length > 0) before.current ??= { minutes: counted, heard: { ...heard[1].in(openedMinute) } };
  /** Before the page was open only the minute is known: its ends are spread over it. */
  const ofMoment = (at: number): EndsBucket => {
    const since = heard[0].in(at);
    const minuteAt = Math.floor(at / hour.bucketMs) * hour.bucketMs;
    const told = before.current?.minutes.get(minuteAt);
    if (at >= openedAt || !told) return since;
    const own = minuteAt === openedMinute ? before.current!.heard : none;
    const share = live.bucketMs / Math.max(live.bucketMs, Math.min(hour.bucketMs, openedAt - minuteAt));
    const early = (all: number, word: EndWord) => Math.max(0, all - own[word]) * share + since[word];
    return {
      completed: early(told.runs_completed, "completed"),
      failed: early(told.runs_failed, "failed"),
      cancelled: early(told.runs_cancelled, "cancelled"),
    };
  };
  return (
    <div class="columns">
      <Section title="Runs that ended" aside={<span class="faint">last two minutes, live</span>}>
        <EndsChart span={live} of={ofMoment} />
      </Section>
      <Section title="Runs that ended" aside={<span class="faint">last hour, by minute</span>}>
        <EndsChart span={hour} of={ofMinute} />
      </Section>
    </div>
  );
}

function EndsChart({ span, of }: { span: ChartSpan; of: (at: number) => EndsBucket }) {
  const now = useTick(live.bucketMs, true);
  const last = Math.floor(now / span.bucketMs);
  const at = Array.from(
    { length: span.buckets },
    (_, index) => (last - span.buckets + 1 + index) * span.bucketMs,
  );
  const values = at.map(of);
  const lines = words.map((word) => ({ name: word, tone: word, values: values.map((one) => one[word]) }));
  const sums = lines.map(
    ({ name, values: all }) => `${count(Math.round(all.reduce((sum, one) => sum + one, 0)))} ${name}`,
  );
  return <TimeChart as="bars" said={sums.join(", ")} {...{ at, lines }} />;
}
