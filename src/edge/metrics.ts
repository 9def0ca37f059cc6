import * as prometheus from "prom-client";
import type { About, Counter, Family, Gauge, Histogram, Metrics } from "../kit/metrics.ts";

export interface ReadableMetrics extends Metrics {
  /** Everything in the text form of Prometheus. Askers at once share one reading. */
  text(): Promise<string>;
  readonly contentType: string;
}

export interface MetricsHost {
  onError: (error: unknown) => void;
}

/** The event loop's lag is sampled so often; each sample wakes the process. */
const lagEveryMs = 20;

/**
 * Bun walks the whole heap for these, which holds the event loop for 25 ms at 300,000 objects, and knows one
 * space of them.
 */
const tooDear = ["total", "used", "available"].map((what) => `nodejs_heap_space_size_${what}_bytes`);

type Labels = Record<string, string>;

/**
 * Metrics kept by prom-client, in a registry of their own: servers that share a process do not share numbers.
 */
export function openMetrics({ onError }: MetricsHost): ReadableMetrics {
  const registry = new prometheus.Registry();
  prometheus.collectDefaultMetrics({ register: registry, eventLoopMonitoringPrecision: lagEveryMs });
  for (const name of tooDear) registry.removeSingleMetric(name);
  const looks: (() => void | Promise<void>)[] = [];
  const families = new Map<string, unknown>();
  let reading: Promise<string> | undefined;

  /** Metrics and series are looked up once, when they are made: counting must not search for its series. */
  function family<Names extends readonly string[], Series>(
    about: About<Names>,
    make: () => (labels: Labels) => Series,
  ): Family<Names, Series> {
    const known = families.get(about.name);
    if (known) return known as Family<Names, Series>;
    const seriesOf = make();
    const names = about.labels ?? [];
    const made = new Map<string, Series>();
    const of: Family<Names, Series> = (...values) => {
      const key = values.join("\n");
      let series = made.get(key);
      if (series === undefined) {
        series = seriesOf(Object.fromEntries(names.map((name, place) => [name, values[place] ?? ""])));
        made.set(key, series);
      }
      return series;
    };
    families.set(about.name, of);
    return of;
  }

  const common = ({ name, help, labels = [] }: About<readonly string[]>) => ({
    name,
    help,
    labelNames: labels,
    registers: [registry],
  });

  async function read(): Promise<string> {
    const looked = await Promise.allSettled(looks.map(async (look) => look()));
    for (const outcome of looked) if (outcome.status === "rejected") onError(outcome.reason);
    return registry.metrics();
  }

  return {
    on: true,
    counter: (about) =>
      family(about, () => {
        const counter = new prometheus.Counter(common(about));
        return (labels): Counter => {
          const series = counter.labels(labels);
          // There from the start: a rate over a series that appears with its first count misses that count.
          series.inc(0);
          return {
            add(count = 1) {
              if (count > 0) series.inc(count);
            },
          };
        };
      }),
    gauge: (about) =>
      family(about, () => {
        const gauge = new prometheus.Gauge(common(about));
        // The library starts a gauge without labels at 0, a value that was never measured.
        if (!about.labels?.length) gauge.remove();
        return (labels): Gauge => ({
          set(value) {
            if (value === undefined) gauge.remove(labels);
            else gauge.set(labels, value);
          },
        });
      }),
    histogram: (about) =>
      family(about, () => {
        const histogram = new prometheus.Histogram({ ...common(about), buckets: [...about.buckets] });
        return (labels): Histogram => {
          const series = histogram.labels(labels);
          histogram.zero(labels);
          return {
            observe(value) {
              if (Number.isFinite(value)) series.observe(value);
            },
          };
        };
      }),
    beforeReading: (look) => void looks.push(look),
    text() {
      reading ??= read().finally(() => {
        reading = undefined;
      });
      return reading;
    },
    contentType: registry.contentType,
  };
}
