/**
 * Numbers about the server itself. The edge decides whether and how they are shown. Nothing here throws:
 * counting must not make the counted work fail.
 */
export interface Counter {
  /** Adds one by default; never a negative number. */
  add(count?: number): void;
}

export interface Gauge {
  /** Undefined removes the series, so that no stale value is shown. */
  set(value: number | undefined): void;
}

export interface Histogram {
  observe(value: number): void;
}

/**
 * The series of a metric by the values of its labels, in the order of their names. Keep what is used often.
 */
export type Family<Names extends readonly string[], Series> = (
  ...values: { [Place in keyof Names]: string }
) => Series;

export interface About<Names extends readonly string[]> {
  /** `svc_…`, with its unit at the end. */
  name: string;
  help: string;
  /** Labels whose values are few and chosen by the server: never names of tenants, functions or events. */
  labels?: Names;
}

/** Makes metrics. The same name gives the same metric. */
export interface Metrics {
  /** False when metrics are off: work that only feeds a metric can be skipped. */
  readonly on: boolean;
  counter<const Names extends readonly string[] = []>(about: About<Names>): Family<Names, Counter>;
  gauge<const Names extends readonly string[] = []>(about: About<Names>): Family<Names, Gauge>;
  histogram<const Names extends readonly string[] = []>(
    about: About<Names> & { buckets: readonly number[] },
  ): Family<Names, Histogram>;
  /**
   * Registers a function called before every reading, for gauges computed on demand. Its errors are logged.
   */
  beforeReading(look: () => void | Promise<void>): void;
}

const nothing = () => {};
const silentCounter: Counter = { add: nothing };
const silentGauge: Gauge = { set: nothing };
const silentHistogram: Histogram = { observe: nothing };

/** Metrics that are off. */
export const noMetrics: Metrics = {
  on: false,
  counter: () => () => silentCounter,
  gauge: () => () => silentGauge,
  histogram: () => () => silentHistogram,
  beforeReading: nothing,
};

/** For a round trip, a request or a flush. */
export const secondsBuckets = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
] as const;
/** For steps and runs, which may sleep for days. */
export const longSecondsBuckets = [
  0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1_800, 3_600, 21_600, 86_400,
] as const;
export const sizeBuckets = [1, 2, 4, 8, 16, 32, 64, 128, 256] as const;
