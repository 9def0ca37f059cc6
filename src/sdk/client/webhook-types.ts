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
