import type { Cluster, Costs } from "./cluster-simulation.ts";

/**
 * By two points of the bench on PostgreSQL: 0.283 s of a node and 0.184 s of PostgreSQL for a thousand runs at 800 a second (24
 * November, 03:36), where the simulation counts 0.158 flushes a run, and 0.129 and 0.116 s as many as go (23 November), where it
 * counts 0.031. What a run takes whatever the flushes is divided as emits alone were measured.
 */
export const measuredCosts: Costs = {
  ...{ emitMs: 0.036, handMs: 0.027, reportMs: 0.027, nodeFlushMs: 1.24 },
  ...{ storeFlushMs: 0.55, storeEmitMs: 0.05, storeReportMs: 0.05 },
  // What a single commit of one caller takes at least (`floorLoneP50`).
  syncMs: 0.2,
  workerMs: 0.07,
  // Not measured: the way to a worker and back, a hint that a node hears, and one that NATS carries to it.
  ...{ wayMs: 1, hintMs: 0.01, busMs: 0.005 },
};

/** The machine of the bench: one environment, one node, and two cores for all. */
export const benchMachine: Cluster = {
  ...{ nodes: 1, postgresCores: 2, environments: 1, hottest: 1, sharedCores: 2, costs: measuredCosts },
};
