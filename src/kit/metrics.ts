/**
 * Numbers about the server itself, as the rest of the house sees them; the edge decides whether and how they are shown.
 * Nothing here throws: what is counted must not fail because it is counted.
 */
export interface Counter {
  /** One when left out. Never negative. */
  add(count?: number): void;
}

export interface Gauge {
  /** Undefined takes the series away: nothing is said rather than something old. */
  set(value: number | undefined): void;
}

export interface Histogram {
  observe(value: number): void;
}

/** The series of a metric by the values of its labels, in the order of their names. Keep what is used often. */
export type Family<Names extends readonly string[], Series> = (
  ...values: { [Place in keyof Names]: string }
) => Series;

export interface About<Names extends readonly string[]> {
  /** `svc_…`, with its unit at the end. */
  name: string;
  help: string;
  /** Names whose values are few and ours: never a tenant's, a function's or an event's. */
  labels?: Names;
}

/** Where metrics are made. Asking again for a name answers the same metric. */
export interface Metrics {
  /** False when nobody will ever read: work that only feeds a metric can be left out. */
  readonly on: boolean;
  counter<const Names extends readonly string[] = []>(about: About<Names>): Family<Names, Counter>;
  gauge<const Names extends readonly string[] = []>(about: About<Names>): Family<Names, Gauge>;
  histogram<const Names extends readonly string[] = []>(
    about: About<Names> & { buckets: readonly number[] },
  ): Family<Names, Histogram>;
  /** Called before every reading, for gauges that are looked up rather than kept. What it throws is logged. */
  beforeReading(look: () => void | Promise<void>): void;
}

const nothing = () => {};
const silentCounter: Counter = { add: nothing };
const silentGauge: Gauge = { set: nothing };
const silentHistogram: Histogram = { observe: nothing };

/** When nobody wants to know. */
export const noMetrics: Metrics = {
  on: false,
  counter: () => () => silentCounter,
  gauge: () => () => silentGauge,
  histogram: () => () => silentHistogram,
  beforeReading: nothing,
};

/** A round trip, a request, a flush. */
export const secondsBuckets = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;
/** What people wait for: steps and runs, which may sleep for days. */
export const longSecondsBuckets = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 21_600, 86_400,
] as const;
export const sizeBuckets = [1, 2, 4, 8, 16, 32, 64, 128, 256] as const;
