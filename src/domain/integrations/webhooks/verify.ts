import { createHash, createHmac, timingSafeEqual } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { bodyOf, formPairs, headerIn, isForm, textAt, type WebhookContent } from "./content.ts";
import { signaturesMax, toleranceSecondsDefault } from "./limits.ts";
import type { VerifyConfig } from "./rules.ts";

/** Which secret a signature fitted; `none` where there is no secret to verify with. */
export type SignatureKey = "current" | "prev" | "none" | "invalid";

/** A secret that may have signed. */
export interface NamedSecret {
  key: "current" | "prev";
  secret: string;
}

export interface SignatureVerdict {
  signatureKey: SignatureKey;
  verified: boolean;
  /** What is signed, with the body's bytes as they came. */
  signed: Uint8Array;
  /** By the secret that fitted, else by the first. */
  computedSignature: string;
  presentedSignatures: string[];
  timestamp: string;
  /** Why it is not verified. */
  error: string;
}

interface Presented {
  signatures: string[];
  timestamp: string | undefined;
}

/** Old forms carry the name of the hash in front of a signature. */
const hashName = /^sha(?:256|1)=/;

/** Signatures and time of the header, by its separators; entries beyond `signaturesMax` are not looked at. */
function presentedIn(header: string, config: VerifyConfig): Presented {
  const { entrySeparator, kvDelimiter, signatureKey, timestampKey } = config;
  const entries = (entrySeparator === "" ? [header] : header.split(entrySeparator)).map((one) => one.trim());
  const signatures: string[] = [];
  let timestamp: string | undefined;
  for (const entry of entries.slice(0, signaturesMax)) {
    if (kvDelimiter === "") {
      signatures.push(entry.replace(hashName, ""));
      continue;
    }
    // Only the first delimiter divides: base64 ends with the one that many headers divide by.
    const at = entry.indexOf(kvDelimiter);
    const key = at < 0 ? "" : entry.slice(0, at).trim();
    const value = at < 0 ? entry : entry.slice(at + kvDelimiter.length).trim();
    if (timestampKey !== "" && key === timestampKey) timestamp ??= value;
    else if (signatureKey === "" || key === signatureKey) signatures.push(value);
  }
  return { signatures, timestamp };
}

/** Sorted by name and value, written without anything between. */
const formText = (bytes: Uint8Array): string =>
  formPairs(bytes)
    .sort(([a, x], [b, y]) => (a === b ? (x < y ? -1 : x > y ? 1 : 0) : a < b ? -1 : 1))
    .map(([name, value]) => name + value)
    .join("");

/** The bytes that are signed. The body stands among them as it came. */
function signedBytes(
  template: string,
  content: WebhookContent,
  { timestamp, id, url }: { timestamp: string; id: string; url: string },
): Uint8Array {
  const pieces = template.split(/(\{(?:body|ts|id|url|form)\})/).map((piece): string | Uint8Array => {
    if (piece === "{body}") return content.bytes;
    if (piece === "{ts}") return timestamp;
    if (piece === "{id}") return id;
    if (piece === "{url}") return content.query === "" ? url : `${url}?${content.query}`;
    if (piece === "{form}") return isForm(content) ? formText(content.bytes) : "";
    return piece;
  });
  return Buffer.concat(pieces.map((piece) => (typeof piece === "string" ? Buffer.from(piece) : piece)));
}

const secretBytes = (secret: string, { secretEncoding }: VerifyConfig): Uint8Array =>
  secretEncoding === "base64"
    ? Buffer.from(secret.replace(/^whsec_/, ""), "base64")
    : Buffer.from(secret, "utf8");

const hexText = /^[0-9a-fA-F]+$/;
const base64Text = /^[A-Za-z0-9+/]+={0,2}$/;

function isSame(presented: string, computed: Buffer, encoding: string): boolean {
  const isHex = encoding !== "base64";
  if (!(isHex ? hexText : base64Text).test(presented)) return false;
  const bytes = Buffer.from(presented, isHex ? "hex" : "base64");
  return bytes.length === computed.length && timingSafeEqual(bytes, computed);
}

/** Without a body in the signed text, its hash must stand in the query, which is signed with the URL. */
function coversBody({ signingTemplate }: VerifyConfig, content: WebhookContent): boolean {
  if (signingTemplate.includes("{body}")) return true;
  if (signingTemplate.includes("{form}") && isForm(content)) return true;
  if (content.bytes.byteLength === 0) return true;
  const hash = createHash("sha256").update(content.bytes).digest("hex");
  return new URLSearchParams(content.query).get("bodySHA256")?.toLowerCase() === hash;
}

/** Seconds, or milliseconds where the number can only be such. */
function instantOf(text: string): Instant | undefined {
  if (!/^\d{1,15}$/.test(text)) return undefined;
  const number = Number(text);
  return number > 99_999_999_999 ? number : number * 1_000;
}

function timeTrouble(config: VerifyConfig, timestamp: string | undefined, now: Instant): string | undefined {
  const isSigned = config.signingTemplate.includes("{ts}") || config.timestampHeader.startsWith("body:");
  if (!isSigned) return undefined;
  if (timestamp === undefined) return "the request carries no timestamp";
  const at = instantOf(timestamp);
  if (at === undefined) return "the timestamp is no number of seconds or milliseconds";
  const seconds = config.toleranceSeconds || toleranceSecondsDefault;
  return Math.abs(now - at) > seconds * 1_000
    ? `the timestamp is more than ${seconds} seconds away from now`
    : undefined;
}

/** The id by which repeats are known: at the configured path, else at the top of the body. */
export function dedupIdOf(config: VerifyConfig, content: WebhookContent, data: unknown): string | undefined {
  const where = { headers: content.headers, data };
  if (config.dedupIdPath !== "") return textAt(config.dedupIdPath, where) || undefined;
  return textAt("body:id", where) || textAt("body:event_id", where) || undefined;
}

const isHeader = (path: string): boolean => path.startsWith("header:");

/** What the signature does not cover, so that who saw one signed request may say it as they like. */
export const uncovered = ({ dedupIdPath, eventNamePath, signingTemplate }: VerifyConfig) => ({
  id: isHeader(dedupIdPath) && !signingTemplate.includes("{id}"),
  name: isHeader(eventNamePath),
});

/**
 * Whether one of the secrets signed the request. `now` is left out where an old request is looked at again:
 * its time has passed.
 */
export function verify(
  config: VerifyConfig,
  secrets: readonly NamedSecret[],
  content: WebhookContent,
  now: Instant | undefined,
): SignatureVerdict {
  const header = headerIn(content.headers, config.signatureHeader);
  const found = header === undefined ? undefined : presentedIn(header, config);
  const needsData = config.timestampHeader.startsWith("body:") || config.signingTemplate.includes("{id}");
  const data = needsData ? bodyOf(content).readable : undefined;
  const timestamp =
    config.timestampHeader === ""
      ? found?.timestamp
      : config.timestampHeader.startsWith("body:")
        ? textAt(config.timestampHeader, { headers: content.headers, data })
        : headerIn(content.headers, config.timestampHeader.replace(/^header:/, ""));
  const id = (config.signingTemplate.includes("{id}") && dedupIdOf(config, content, data)) || "";
  const signed = signedBytes(config.signingTemplate, content, {
    ...{ timestamp: timestamp ?? "", id, url: config.url },
  });
  const hash = config.algorithm === "hmac-sha1" ? "sha1" : "sha256";
  const encoding = config.encoding === "base64" ? "base64" : "hex";
  const hmacs = secrets.flatMap(({ key, secret }) => {
    const bytes = secretBytes(secret, config);
    // Anybody could sign with an empty key, which is what a text that is not base64 would become.
    return bytes.length === 0 ? [] : { key, hmac: createHmac(hash, bytes).update(signed).digest() };
  });
  const signatures = found?.signatures ?? [];
  const fitting = hmacs.find(({ hmac }) => signatures.some((one) => isSame(one, hmac, encoding)));
  const error =
    header === undefined
      ? `the header ${config.signatureHeader} is missing`
      : signatures.length === 0
        ? `the header ${config.signatureHeader} holds no signature`
        : !fitting
          ? "no signature fits"
          : !coversBody(config, content)
            ? "the signature does not cover the body"
            : now === undefined
              ? undefined
              : timeTrouble(config, timestamp, now);
  return {
    verified: error === undefined,
    signatureKey: error === undefined ? fitting!.key : "invalid",
    signed,
    computedSignature: (fitting ?? hmacs[0])?.hmac.toString(encoding) ?? "",
    presentedSignatures: signatures,
    timestamp: timestamp ?? "",
    error: error ?? "",
  };
}
