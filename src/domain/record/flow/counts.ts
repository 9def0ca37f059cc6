import { flowEdgesMax, publishesMax } from "./limits.ts";

export type EdgeKind = "start" | "emit" | "invoke" | "stream" | "topic" | "wait";

/** What is counted by the minute: events that were logged, runs that were started and how they ended. */
export const happenings = ["events", "started", "completed", "failed", "cancelled"] as const;
export type Happening = (typeof happenings)[number];

export interface EdgeCount {
  environmentId: string;
  kind: EdgeKind;
  /** Both are empty for what found no room among the edges of its kind. */
  source: string;
  target: string;
  count: number;
}

/** Messages that a run published on a topic: which function it ran is looked up when they are written. */
export interface PublishCount {
  environmentId: string;
  runId: string;
  topic: string;
  count: number;
}

export type MinuteCount = Record<Happening, number> & { environmentId: string };

export interface FlowCounted {
  edges: EdgeCount[];
  minutes: MinuteCount[];
}

/** Counts of pairs, such as the two ends of an edge; those beyond `max` different ones are counted as one. */
export class Pairs {
  readonly #max: number;
  readonly #targets = new Map<string, Map<string, number>>();
  #size = 0;
  without = 0;

  constructor(max: number) {
    this.#max = max;
  }

  add(source: string, target: string, count: number): void {
    const own = this.#targets.get(source);
    const before = own?.get(target);
    if (before === undefined && this.#size >= this.#max) {
      this.without += count;
      return;
    }
    if (before === undefined) this.#size++;
    if (own) own.set(target, (before ?? 0) + count);
    else this.#targets.set(source, new Map([[target, count]]));
  }

  *all(): Iterable<{ source: string; target: string; count: number }> {
    for (const [source, targets] of this.#targets)
      for (const [target, count] of targets) yield { source, target, count };
  }
}

class EnvironmentCounts {
  readonly edges = new Map<EdgeKind, Pairs>();
  readonly minute: Record<Happening, number> = {
    ...{ events: 0, started: 0, completed: 0, failed: 0, cancelled: 0 },
  };

  edgesOf(kind: EdgeKind): Pairs {
    const known = this.edges.get(kind);
    if (known) return known;
    const pairs = new Pairs(flowEdgesMax);
    this.edges.set(kind, pairs);
    return pairs;
  }
}

/** What happened at this node since its last write, in memory: counting takes few look-ups, no promise. */
export class FlowCounts {
  #byEnvironment = new Map<string, EnvironmentCounts>();
  #publishes = new Map<string, Pairs>();

  #of(environmentId: string): EnvironmentCounts {
    const known = this.#byEnvironment.get(environmentId);
    if (known) return known;
    const own = new EnvironmentCounts();
    this.#byEnvironment.set(environmentId, own);
    return own;
  }

  happened(environmentId: string, what: Happening, count: number): void {
    this.#of(environmentId).minute[what] += count;
  }

  /** The event of an invocation has the function's name, and leads from no event to it. */
  began(environmentId: string, eventName: string, functionId: string): void {
    this.happened(environmentId, "started", 1);
    if (eventName !== functionId) this.edges(environmentId, "start").add(eventName, functionId, 1);
  }

  edges(environmentId: string, kind: EdgeKind): Pairs {
    return this.#of(environmentId).edgesOf(kind);
  }

  /** Of runs and topics. */
  publishes(environmentId: string): Pairs {
    const known = this.#publishes.get(environmentId);
    if (known) return known;
    const own = new Pairs(publishesMax);
    this.#publishes.set(environmentId, own);
    return own;
  }

  /** All publishes, which the counts then no longer hold. */
  takePublishes(): PublishCount[] {
    const publishes: PublishCount[] = [];
    for (const [environmentId, own] of this.#publishes) {
      for (const { source: runId, target: topic, count } of own.all())
        publishes.push({ environmentId, runId, topic, count });
      this.edges(environmentId, "topic").without += own.without;
    }
    this.#publishes = new Map();
    return publishes;
  }

  /** Everything else, which the counts then no longer hold. */
  take(): FlowCounted {
    const counted: FlowCounted = { edges: [], minutes: [] };
    for (const [environmentId, own] of this.#byEnvironment) {
      for (const [kind, pairs] of own.edges) {
        for (const pair of pairs.all()) counted.edges.push({ environmentId, kind, ...pair });
        if (pairs.without > 0)
          counted.edges.push({ environmentId, kind, source: "", target: "", count: pairs.without });
      }
      if (happenings.some((what) => own.minute[what] > 0))
        counted.minutes.push({ environmentId, ...own.minute });
    }
    this.#byEnvironment = new Map();
    return counted;
  }

  /** What could not be written is written with what happens next. */
  putBack({ edges, minutes }: FlowCounted): void {
    for (const { environmentId, kind, source, target, count } of edges) {
      const pairs = this.edges(environmentId, kind);
      if (source === "") pairs.without += count;
      else pairs.add(source, target, count);
    }
    for (const { environmentId, ...minute } of minutes)
      for (const what of happenings) this.happened(environmentId, what, minute[what]);
  }
}
