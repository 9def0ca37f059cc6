/**
 * Whether this node is leaving: probes say so, connections are asked to go, and requests are still answered.
 */
export interface Draining {
  active: boolean;
}
