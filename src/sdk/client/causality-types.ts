export type CauseKind = "event" | "run" | "step" | "message" | "delivery" | "letter";

export interface CauseNode {
  kind: CauseKind;
  id: string;
  /** The event's name, the run's function, the step's name, the topic, the webhook source or endpoint. */
  name: string;
  /** Of a run, a step and a delivery; else empty. */
  status: string;
  /** RFC 3339. */
  at: string;
  /** Steps away from what was asked about; negative for causes. */
  depth: number;
  /** The stream that the event was appended to, and its version there. */
  entity?: { id: string; version: number };
}

export interface CauseEdge {
  cause: { kind: CauseKind; id: string };
  effect: { kind: CauseKind; id: string };
  relation: "started" | "emitted" | "appended" | "published" | "invoked" | "took" | "brought" | "undelivered";
}

export interface CauseGraphOptions {
  /** Both when left out. */
  direction?: "causes" | "effects";
  /** Levels, 1 to 50; 10 when left out. */
  depth?: number;
  /** Things, 1 to 1,000; 200 when left out. */
  limit?: number;
}

export interface CauseGraph {
  /** By distance, causes first. */
  things: CauseNode[];
  links: CauseEdge[];
  /** There is more, further away or beside. */
  truncated: boolean;
  /** Things that deny policies keep from the caller. */
  hidden: number;
}

export interface CausalityCalls {
  /**
   * What led to a thing, and what it led to. A step is named by its run's id, a slash and its own; a message
   * by its sequence; a letter by the endpoint's id, a slash and the event's. `not_found` when it is unknown.
   */
  get(kind: CauseKind, id: string, options?: CauseGraphOptions): Promise<CauseGraph>;
  /** Cancels a run and the runs that it led to; `over` counts those that had ended. */
  cancelSubtree(
    runId: string,
    options?: { reason?: string },
  ): Promise<{ cancelled: string[]; over: number; hidden: number; truncated: boolean }>;
}
