import type { Duration } from "../wire/duration.ts";

/** How requests of a provider are verified; defaults: the preset's. Paths: `header:X-Name`, `body:a.b`. */
export interface WebhookVerifyConfig {
  signatureHeader?: string;
  entrySeparator?: string;
  kvDelimiter?: string;
  signatureKey?: string;
  timestampHeader?: string;
  timestampKey?: string;
  /** With `{body}`, `{ts}`, `{id}`, `{url}` and `{form}`. */
  signingTemplate?: string;
  encoding?: "hex" | "base64";
  algorithm?: "hmac-sha256" | "hmac-sha1";
  toleranceSeconds?: number;
  eventNamePath?: string;
  dedupIdPath?: string;
  /** What `{url}` stands for. */
  url?: string;
  secretEncoding?: "text" | "base64";
}

export type WebhookPreset =
  | "stripe"
  | "github"
  | "slack"
  | "shopify"
  | "standard-webhooks"
  | "twilio"
  | "linear"
  | "generic-hmac";

export interface NewWebhookSource {
  /** Events are named `{eventPrefix}.{type}`. */
  eventPrefix: string;
  name?: string;
  preset?: WebhookPreset;
  verifyConfig?: WebhookVerifyConfig;
  secret?: string;
  metadata?: Record<string, unknown>;
}

export interface WebhookSource {
  id: string;
  name: string;
  eventPrefix: string;
  sourceType: string;
  metadata: Record<string, unknown>;
  secretSet: boolean;
  previousSecretSet: boolean;
  ingestTokenPrefix: string;
  /** Only in the answers that make one: it stands in the URL that the provider is given. */
  ingestToken?: string;
  createdAt: string;
  updatedAt: string;
}

/**
 * Name and metadata are replaced: left out, they become empty. How it verifies is replaced as a whole by
 * `preset` and `verifyConfig`, and stays without them.
 */
export interface WebhookSourceChange
  extends Pick<NewWebhookSource, "name" | "metadata" | "preset" | "verifyConfig"> {
  /** The source's `updatedAt` as it was read: a source that was changed since is refused, `aborted`. */
  expectedUpdatedAt?: string;
}

/** A sample of a request. It is judged by `verifyConfig` and `secret`, or else by those of the source. */
export interface WebhookSample {
  sourceId?: string;
  verifyConfig?: WebhookVerifyConfig;
  secret?: string;
  body: string;
  headers: Record<string, string>;
}

/** What the server would make of a sample. */
export interface WebhookTrial {
  verified: boolean;
  signingString: string;
  /** Left out where it would tell what the source's own secret signs. */
  computedSignature?: string;
  presentedSignatures: string[];
  resolvedTimestamp?: string;
  resolvedEventName?: string;
  resolvedDedupId?: string;
  error?: string;
}

export interface WebhookDelivery {
  id: string;
  sourceId: string;
  status: "accepted" | "rejected" | "failed";
  signatureKey: "current" | "prev" | "none" | "invalid";
  eventId?: string;
  eventName?: string;
  externalId?: string;
  error?: string;
  duplicate: boolean;
  redeliveredFrom?: string;
  requestBody: string;
  requestBodyTruncated: boolean;
  requestHeaders: Record<string, string>;
  createdAt: string;
}

export interface NewWebhookEndpoint {
  url: string;
  /** `order.*`, `entity:cart.>` */
  pattern: string;
  name?: string;
  /** CEL, as in subscriptions. */
  filter?: string;
  /** Begins after this position; at the end of the log by default. */
  after?: number;
}

export interface WebhookEndpoint {
  id: string;
  name: string;
  url: string;
  pattern: string;
  filter: string;
  status: "active" | "paused" | "disabled";
  disabledReason?: string;
  /** Only in the answers that make one; what `verifyWebhook` takes. */
  secret?: string;
  position: number;
  /** Positions to the end of the log. */
  behind: number;
  attempts: number;
  failingEventId?: string;
  nextAttemptAt?: string;
  lastError?: string;
  lastDeliveredAt?: string;
  deadLetters: number;
  createdAt: string;
  updatedAt: string;
}

export interface WebhookDeadLetter {
  endpointId: string;
  eventId: string;
  eventName: string;
  sequence: number;
  attempts: number;
  lastError: string;
  deadAt: string;
  redelivering: boolean;
}

export interface PageOptions {
  /** Default 20, at most 200. */
  limit?: number;
  offset?: number;
}

export interface GraceOption {
  /** How long the old secret is good beside the new one, in whole seconds. Default a day. */
  grace?: Duration;
  /** @deprecated Write `grace`. */
  graceSeconds?: number;
}

/** Webhooks of providers, which become events. */
export interface WebhookSourceCalls {
  create(source: NewWebhookSource): Promise<WebhookSource>;
  get(id: string): Promise<WebhookSource>;
  list(options?: PageOptions): Promise<WebhookSource[]>;
  update(id: string, change: WebhookSourceChange): Promise<WebhookSource>;
  /** Stores nothing. */
  test(sample: WebhookSample): Promise<WebhookTrial>;
  rotateSecret(id: string, secret: string, options?: GraceOption): Promise<WebhookSource>;
  rotateToken(id: string): Promise<WebhookSource>;
  delete(id: string): Promise<void>;
  /** Newest first, with the beginning of each body. */
  deliveries(
    sourceId: string,
    options?: PageOptions & { status?: WebhookDelivery["status"] },
  ): Promise<WebhookDelivery[]>;
  delivery(id: string): Promise<WebhookDelivery>;
  /** Emits the delivery's event again. */
  redeliver(deliveryId: string): Promise<WebhookDelivery>;
}

/** Events that are sent to URLs, in the order of the log. */
export interface WebhookEndpointCalls {
  create(endpoint: NewWebhookEndpoint): Promise<WebhookEndpoint>;
  get(id: string): Promise<WebhookEndpoint>;
  list(options?: PageOptions & { status?: WebhookEndpoint["status"] }): Promise<WebhookEndpoint[]>;
  update(id: string, change: Partial<Omit<NewWebhookEndpoint, "after">>): Promise<WebhookEndpoint>;
  rotateSecret(id: string, options?: GraceOption): Promise<WebhookEndpoint>;
  pause(id: string): Promise<WebhookEndpoint>;
  /** `skipEventId` makes the event that fails a dead letter. */
  resume(id: string, options?: { skipEventId?: string }): Promise<WebhookEndpoint>;
  delete(id: string): Promise<void>;
  deadLetters(id: string, options?: PageOptions): Promise<WebhookDeadLetter[]>;
  redeliver(id: string, eventId: string): Promise<WebhookDeadLetter>;
  discard(id: string, eventId: string): Promise<void>;
}

export interface WebhookCalls {
  readonly sources: WebhookSourceCalls;
  readonly endpoints: WebhookEndpointCalls;
}

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
