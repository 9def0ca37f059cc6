/** What a rule looks for. */
export type AlertCondition =
  | "run_failed"
  | "failure_share"
  | "oldest_waiting"
  | "no_worker"
  | "missed_schedule"
  | "dead_letter"
  | "breaker_open"
  | "projection_error"
  | "endpoint_stopped"
  | "quota_near"
  | "integrity";

/** `secret`: name of a secret that signs. URLs are shown without a query, Slack's without its end. */
export type AlertTarget =
  | { type: "webhook"; url: string; secret?: string }
  | { type: "slack"; url: string }
  | { type: "email"; to: readonly string[] };

export interface NewAlertRule {
  name: string;
  condition: AlertCondition;
  /** The one function that it looks at; all when left out. `no_worker` needs one. */
  functionId?: string;
  /** From 0 to 1; of `failure_share` and `quota_near`. */
  share?: number;
  /** Of `failure_share`: 15 when left out. */
  windowMinutes?: number;
  /** Of `failure_share`: how many runs must have ended in the window. */
  minimum?: number;
  /** Of `oldest_waiting`. */
  waitingMs?: number;
  targets: readonly AlertTarget[];
  /** While it lasts, targets are told again after this long: 4 hours when left out, 0 for never. */
  repeatAfterMs?: number;
  /** What happens is over when it has not happened for this long: 10 minutes when left out. */
  resolveAfterMs?: number;
}

export interface AlertRule extends NewAlertRule {
  repeatAfterMs: number;
  resolveAfterMs: number;
  /** Nobody is told before. */
  silencedUntil?: string;
  createdAt: string;
  updatedAt: string;
}

/** What a target was told last, or is still to be told. */
export interface AlertDelivery {
  target: string;
  kind: "opened" | "repeated" | "resolved";
  state: "waiting" | "sent" | "given_up";
  attempts: number;
  lastError?: string;
  sentAt?: string;
}

export interface Alert {
  id: string;
  rule: string;
  condition: AlertCondition;
  /** The thing that it is about; empty for the environment. */
  subject: string;
  detail: string;
  count: number;
  state: "open" | "resolved";
  openedAt: string;
  seenAt: string;
  toldAt?: string;
  resolvedAt?: string;
  resolvedBy?: string;
  deliveries: AlertDelivery[];
}

export interface AlertCalls {
  /** Newest first. */
  list(options?: {
    rule?: string;
    state?: Alert["state"];
    limit?: number;
    cursor?: string;
  }): Promise<{ alerts: Alert[]; nextCursor: string }>;
  /** By hand: what lasts is told again only after it was over. */
  resolve(id: string): Promise<Alert>;
  rules: {
    /** Makes a rule, or replaces the one of that name. */
    put(rule: NewAlertRule): Promise<AlertRule>;
    get(name: string): Promise<AlertRule>;
    list(): Promise<AlertRule[]>;
    delete(name: string): Promise<void>;
    /** Nobody is told until then; without a time the silence ends. */
    silence(name: string, until?: Date | string): Promise<AlertRule>;
    /** Sends a message that is marked as a test to each target. */
    test(name: string): Promise<{ target: string; delivered: boolean; error: string }[]>;
  };
}
