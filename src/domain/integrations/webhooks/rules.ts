import { createHash, hash, timingSafeEqual } from "node:crypto";
import { requireEventName, requireStorable } from "../../../kit/event-names.ts";
import { type Fault, invalid } from "../../../kit/fault.ts";
import { ownKeyMark, webhookKeyStart } from "../../../kit/key-claims.ts";
import { eventNameBytesMax, idempotencyKeyBytesMax } from "../../../kit/limits.ts";
import type { Thing } from "../../../kit/operation.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import {
  dedupIdBytesMax,
  eventPrefixBytesMax,
  headerNamesKnownMax,
  keptHeaderCharsMax,
  keptHeadersMax,
  secretGraceSecondsMax,
  toleranceSecondsMax,
  verifySecretBytesMax,
  verifyTextBytesMax,
  webhookMetadataBytesMax,
  webhookNameCharsMax,
} from "./limits.ts";

/** How requests of a provider are verified and named. Empty texts and zeros say nothing. */
export interface VerifyConfig {
  signatureHeader: string;
  entrySeparator: string;
  kvDelimiter: string;
  signatureKey: string;
  /** A header; or `body:a.b`, which the signature covers with the body. */
  timestampHeader: string;
  timestampKey: string;
  signingTemplate: string;
  encoding: string;
  algorithm: string;
  toleranceSeconds: number;
  eventNamePath: string;
  dedupIdPath: string;
  url: string;
  secretEncoding: string;
}

export const emptyConfig: VerifyConfig = {
  signatureHeader: "",
  entrySeparator: "",
  kvDelimiter: "",
  signatureKey: "",
  timestampHeader: "",
  timestampKey: "",
  signingTemplate: "",
  encoding: "",
  algorithm: "",
  toleranceSeconds: 0,
  eventNamePath: "",
  dedupIdPath: "",
  url: "",
  secretEncoding: "",
};

const hex256 = { encoding: "hex", algorithm: "hmac-sha256", signingTemplate: "{body}" };

/** What providers document; `presets.test` holds each to an example of its own documentation. */
export const presets = {
  stripe: {
    ...hex256,
    ...{ signatureHeader: "stripe-signature", entrySeparator: ",", kvDelimiter: "=", signatureKey: "v1" },
    ...{ timestampKey: "t", signingTemplate: "{ts}.{body}", toleranceSeconds: 300 },
    ...{ eventNamePath: "body:type", dedupIdPath: "body:id" },
  },
  github: {
    ...hex256,
    ...{ signatureHeader: "x-hub-signature-256", kvDelimiter: "=", signatureKey: "sha256" },
    ...{ eventNamePath: "header:x-github-event", dedupIdPath: "header:x-github-delivery" },
  },
  slack: {
    ...hex256,
    ...{ signatureHeader: "x-slack-signature", kvDelimiter: "=", signatureKey: "v0" },
    ...{ timestampHeader: "x-slack-request-timestamp", signingTemplate: "v0:{ts}:{body}" },
    ...{ toleranceSeconds: 300, dedupIdPath: "body:event_id" },
  },
  shopify: {
    ...{ ...hex256, encoding: "base64", signatureHeader: "x-shopify-hmac-sha256" },
    ...{ eventNamePath: "header:x-shopify-topic", dedupIdPath: "header:x-shopify-webhook-id" },
  },
  "standard-webhooks": {
    ...{ ...hex256, encoding: "base64", secretEncoding: "base64", signatureHeader: "webhook-signature" },
    ...{ entrySeparator: " ", kvDelimiter: ",", signatureKey: "v1", timestampHeader: "webhook-timestamp" },
    ...{ signingTemplate: "{id}.{ts}.{body}", toleranceSeconds: 300, dedupIdPath: "header:webhook-id" },
  },
  twilio: {
    ...{ encoding: "base64", algorithm: "hmac-sha1", signatureHeader: "x-twilio-signature" },
    ...{ signingTemplate: "{url}{form}", dedupIdPath: "header:i-twilio-idempotency-token" },
  },
  linear: {
    ...{ ...hex256, signatureHeader: "linear-signature", timestampHeader: "body:webhookTimestamp" },
    ...{ toleranceSeconds: 60, eventNamePath: "body:type", dedupIdPath: "header:linear-delivery" },
  },
  "generic-hmac": { ...hex256, signatureHeader: "x-signature" },
} as const satisfies Record<string, Partial<VerifyConfig>>;

export type PresetName = keyof typeof presets;
export const presetNames = Object.keys(presets) as PresetName[];

/** The preset with what the caller gave in place of its own. */
export function configOf(preset: PresetName | undefined, given: VerifyConfig): VerifyConfig {
  const base: VerifyConfig = preset === undefined ? emptyConfig : { ...emptyConfig, ...presets[preset] };
  const stated = Object.entries(given).filter(([, value]) => value !== "" && value !== 0);
  return { ...base, ...Object.fromEntries(stated) };
}

export const deliveryStatuses = ["accepted", "rejected", "failed"] as const;

/** What begins every ingest token. */
export const tokenStart = "ifwh_";
export const tokenBytes = 32;
/** As much of a token is shown after it was made. */
export const shownPrefixOf = (token: string): string => token.slice(0, tokenStart.length + 8);
export const hashOfToken = (token: string): string => hash("sha256", token, "hex");

/** Takes the same time whatever the token is: both sides are hashes. */
export const isToken = (token: string, stored: string): boolean =>
  timingSafeEqual(Buffer.from(hashOfToken(token)), Buffer.from(stored));

/**
 * A source emits under its prefix, whatever the provider sends, and may start functions of these names: so
 * who makes or replays one must be allowed all of that.
 */
export const emitThings = (prefix: string): Thing[] => [
  ...[`${prefix}.*`, `events:${prefix}.*`].map((id) => ({
    ...{ type: "event", id, isPattern: true, action: "events:emit" },
  })),
  { type: "function", id: `${prefix}.*`, isPattern: true, action: "functions:invoke" },
];

/** Deliveries show what the events hold; `names` may hold `*` for any run of characters. */
export const readThings = (names: string): Thing[] =>
  [names, `events:${names}`].map((id) => ({
    ...{ type: "event", id, isPattern: true, action: "events:subscribe" },
  }));

export function requireName(name: string): string {
  requireStorable("name", name);
  if (name.length > webhookNameCharsMax) throw invalid("name", `at most ${webhookNameCharsMax} characters`);
  return name;
}

export function requirePrefix(prefix: string): string {
  requireEventName("event_prefix", prefix);
  if (Buffer.byteLength(prefix) > eventPrefixBytesMax)
    throw invalid("event_prefix", `at most ${eventPrefixBytesMax} bytes`);
  return prefix;
}

export const metadataText = (metadata: Record<string, unknown> | undefined): string =>
  jsonText("metadata", metadata ?? {}, webhookMetadataBytesMax);

const headerName = /^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/;

function requireHeader(field: string, name: string): void {
  if (name !== "" && !headerName.test(name)) throw invalid(field, "must be the name of a header");
}

function requirePath(field: string, path: string): void {
  const [, kind, rest = ""] = /^(header|body):(.*)$/s.exec(path) ?? [];
  if (kind === "header" && headerName.test(rest)) return;
  if (kind === "body" && rest !== "" && !rest.split(".").includes("")) return;
  throw invalid(field, "must be header:X-Name or body:a.b");
}

const oneOf = (field: string, value: string, words: readonly string[]): void => {
  if (!words.includes(value)) throw invalid(field, `must be one of ${words.join(", ")}`);
};

const algorithms = ["hmac-sha256", "hmac-sha1"];

/** Throws the fault that names the field; `at` is what the request calls the whole. */
export function requireConfig(config: VerifyConfig): VerifyConfig {
  const at = (field: string) => `verify_config.${field}`;
  for (const [field, value] of Object.entries(config)) {
    if (typeof value !== "string") continue;
    requireStorable(at(field), value);
    if (Buffer.byteLength(value) > verifyTextBytesMax)
      throw invalid(at(field), `at most ${verifyTextBytesMax} bytes`);
  }
  const filled: VerifyConfig = {
    ...config,
    signingTemplate: config.signingTemplate || "{body}",
    encoding: config.encoding || "hex",
    algorithm: config.algorithm || "hmac-sha256",
  };
  requireHeader(at("signature_header"), filled.signatureHeader);
  if (/^(?:header|body):/.test(filled.timestampHeader))
    requirePath(at("timestamp_header"), filled.timestampHeader);
  else requireHeader(at("timestamp_header"), filled.timestampHeader);
  oneOf(at("encoding"), filled.encoding, ["hex", "base64"]);
  oneOf(at("algorithm"), filled.algorithm, algorithms);
  oneOf(at("secret_encoding"), filled.secretEncoding || "text", ["text", "base64"]);
  if (filled.eventNamePath !== "") requirePath(at("event_name_path"), filled.eventNamePath);
  if (filled.dedupIdPath !== "") requirePath(at("dedup_id_path"), filled.dedupIdPath);
  requireTemplate(at, filled);
  const { toleranceSeconds } = filled;
  if (!Number.isInteger(toleranceSeconds) || toleranceSeconds < 0 || toleranceSeconds > toleranceSecondsMax)
    throw invalid(at("tolerance_seconds"), `must be from 0 to ${toleranceSecondsMax}`);
  return filled;
}

function requireTemplate(at: (field: string) => string, config: VerifyConfig): void {
  const { signingTemplate, url, timestampHeader, timestampKey, kvDelimiter } = config;
  const unknown = /\{(?!(?:body|ts|id|url|form)\})[^}]*\}?/.exec(signingTemplate);
  if (unknown)
    throw invalid(
      at("signing_template"),
      "may hold {body}, {ts}, {id}, {url} and {form}, and no other brace",
    );
  const placeholders = signingTemplate.match(/\{\w+\}/g) ?? [];
  // Repeated, a body of a few MiB would become hundreds of them for each request.
  if (new Set(placeholders).size < placeholders.length)
    throw invalid(at("signing_template"), "must hold each placeholder once");
  // A signature over less would let anybody who saw one send any body.
  if (!/\{(?:body|form)\}/.test(signingTemplate))
    throw invalid(at("signing_template"), "must hold {body}, or {url} and {form}");
  if (!signingTemplate.includes("{body}") && !signingTemplate.includes("{url}"))
    throw invalid(at("signing_template"), "must hold {url} where it holds {form} and no {body}");
  if (signingTemplate.includes("{url}") && !/^https?:\/\/[^?#]+$/.test(url))
    throw invalid(
      at("url"),
      "must be the URL that the provider calls, without query, as {url} stands for it",
    );
  if (
    signingTemplate.includes("{ts}") &&
    timestampHeader === "" &&
    (timestampKey === "" || kvDelimiter === "")
  )
    throw invalid(at("timestamp_header"), "must say where {ts} stands, or timestamp_key with kv_delimiter");
}

/** The older two fields as a configuration: a hex HMAC of the body. */
export function legacyConfig(header: string, algorithm: string): Partial<VerifyConfig> {
  requireHeader("verify_header", header);
  if (algorithm !== "") oneOf("verify_algorithm", algorithm, algorithms);
  return { signatureHeader: header, algorithm: algorithm || "hmac-sha256" };
}

export function requireSecret(secret: string, config: VerifyConfig | undefined): string {
  const field = "verify_secret";
  if (!config)
    throw invalid(
      field,
      "needs preset, verify_config or verify_header, which say where the signature stands",
    );
  if (config.signatureHeader === "")
    throw invalid("verify_config.signature_header", "must not be empty where there is a secret");
  requireStorable(field, secret);
  if (secret === "" || Buffer.byteLength(secret) > verifySecretBytesMax)
    throw invalid(field, `must be 1 to ${verifySecretBytesMax} bytes`);
  if (config.secretEncoding === "base64" && !/^(?:whsec_)?[A-Za-z0-9+/]{4,}={0,2}$/.test(secret))
    throw invalid(field, "must be base64, with or without whsec_ in front");
  return secret;
}

export function requireGrace(seconds: number): number {
  if (!Number.isInteger(seconds) || seconds < 0 || seconds > secretGraceSecondsMax)
    throw invalid("grace_seconds", `must be from 0 to ${secretGraceSecondsMax}`);
  return seconds;
}

/** The name of an event by what the provider calls it. Throws the fault for one that cannot be a name. */
export function eventNameOf(prefix: string, type: string): string {
  const name = `${prefix}.${type}`;
  if (Buffer.byteLength(name) > eventNameBytesMax)
    throw invalid("event name", `at most ${eventNameBytesMax} bytes with the prefix`);
  requireEventName("event name", name);
  return name;
}

/** Event types of requests that name none. */
export const namelessType = "received";

/** The dedup id as it is stored; a long or unprintable one by its hash. */
export const storedDedupId = (id: string): string =>
  Buffer.byteLength(id) <= dedupIdBytesMax && !/\p{Cc}/u.test(id) && id.isWellFormed()
    ? id
    : `sha256:${createHash("sha256").update(id).digest("hex")}`;

/** The idempotency key of its event, which no caller can send. */
export function dedupKey(sourceId: string, dedupId: string): string {
  const key = `${webhookKeyStart}${sourceId}:${dedupId}`;
  return Buffer.byteLength(key) <= idempotencyKeyBytesMax
    ? key
    : `${webhookKeyStart}${sourceId}:sha256:${createHash("sha256").update(dedupId).digest("hex")}`;
}

/** Stored key of the signature that proved a request, whatever its id and name. No provider's id is one. */
export const signatureKeyOf = (sourceId: string, signature: string): string =>
  `${ownKeyMark}webhook-signature:${sourceId}:${createHash("sha256").update(signature).digest("hex")}`;

const credentialHeaders = new Set(["authorization", "cookie", "proxy-authorization"]);
/** GitLab and others send a shared secret as it is. */
const credentialEnds = /(?<!idempotency-)(?:token|secret|password|api-?key|session|credential)$/;

const isKept = (name: string) => !credentialHeaders.has(name) && !credentialEnds.test(name);

/** By name: providers send the same headers all the time. */
const known = new Map<string, boolean>();

function isKnownToBeKept(name: string): boolean {
  let is = known.get(name);
  if (is === undefined) {
    is = isKept(name);
    if (known.size < headerNamesKnownMax) known.set(name, is);
  }
  return is;
}

/** Headers as they are kept with a delivery: without credentials, and within bounds. */
export function keptHeaders(headers: Readonly<Record<string, string>>): Record<string, string> {
  const kept: [string, string][] = [];
  for (const name in headers) {
    if (kept.length === keptHeadersMax) break;
    if (isKnownToBeKept(name))
      kept.push([name, headers[name]!.slice(0, keptHeaderCharsMax).replaceAll("\0", "").toWellFormed()]);
  }
  return Object.fromEntries(kept);
}

export interface KeptBody {
  text: string;
  /** The text is the whole body, byte for byte. */
  isWhole: boolean;
}

/** As much of a body as is kept, as text that both stores take. */
export function keptBody(bytes: Uint8Array, bytesMax: number): KeptBody {
  const cut = bytes.byteLength > bytesMax;
  const text = new TextDecoder().decode(cut ? bytes.subarray(0, bytesMax) : bytes).replaceAll("\0", "\ufffd");
  const isWhole = !cut && Buffer.from(text).equals(bytes);
  return { text, isWhole };
}

export const isPreset = (text: string, names: readonly PresetName[]): text is PresetName =>
  (names as readonly string[]).includes(text);

/** The refusal as a delivery keeps it. */
export const errorOf = (fault: Fault, charsMax: number): string =>
  fault.message.slice(0, charsMax).replaceAll("\0", "").toWellFormed();
