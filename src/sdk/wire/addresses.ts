import { SvcError } from "./errors.ts";
import { ask } from "./http-answer.ts";
import { after } from "./retry.ts";

const urlsMax = 16;
/** How long a server may take to name its installation. */
const nameMsMax = 5_000;

const refusals = new Set([
  "ECONNREFUSED",
  "ConnectionRefused",
  "ENOTFOUND",
  "EAI_AGAIN",
  "FailedToOpenSocket",
]);

/** A password must not stand in an error. */
export const shownUrl = (url: string): string => url.replace(/\/\/[^/]*@/, "//…@");

export function unreachable(url: string, cause: unknown): SvcError {
  const { code, cause: inner } = cause as { code?: string; cause?: { code?: string } };
  const word = inner?.code ?? code ?? "";
  const unsent = refusals.has(word);
  const why = word || (cause instanceof Error ? cause.message : String(cause));
  const text = `${shownUrl(url)} does not answer (${why})`;
  return new SvcError("unreachable", text, { retryable: true, unsent, cause });
}

/** Without slashes at its end. Throws TypeError for anything but an address of a server. */
function checkedUrl(name: string, given: unknown): string {
  const text = typeof given === "string" ? given : "";
  const isUrl = URL.canParse(text) && /^https?:$/.test(new URL(text).protocol);
  if (!isUrl)
    throw new TypeError(`${name}: must be http:// or https:// with a host, not "${shownUrl(text)}"`);
  return text.replace(/\/+$/, "");
}

/** Several stand with commas between them, which one address may have as well. */
export const urlsIn = (text: string): string[] => text.trim().split(/\s*,\s*(?=[a-z][a-z+.-]*:\/\/)/i);

/** Throws TypeError for anything but one address, or 1 to 16 that differ. */
export function checkedUrls(given: string | readonly string[]): readonly string[] {
  if (!Array.isArray(given)) return [checkedUrl("url", given)];
  if (given.length === 0 || given.length > urlsMax)
    throw new TypeError(`url: must name 1 to ${urlsMax} servers, not ${given.length}`);
  const urls = given.map((one, at) => checkedUrl(given.length === 1 ? "url" : `url[${at}]`, one));
  const seen = new Set<string>();
  for (const [at, url] of urls.entries()) {
    const { href } = new URL(url);
    if (seen.has(href)) throw new TypeError(`url[${at}]: ${shownUrl(url)} stands in the list already`);
    seen.add(href);
  }
  return urls;
}

/** As servers answer that name no installation yet; no page of anybody else. */
function isReady(text: string): boolean {
  try {
    return (JSON.parse(text) as { status?: unknown }).status === "ready";
  } catch {
    return false;
  }
}

interface ServerSaid {
  /** Null when it names none. */
  installation: string | null;
  /** It drains, or misses its bus: it answers, and others are better. */
  notReady?: SvcError;
}

/** What the server at `url` says of itself, asked without a key. Throws SvcError. */
async function serverAt(url: string): Promise<ServerSaid> {
  const stop = new AbortController();
  const cancel = after(nameMsMax, () => stop.abort(new Error("no answer in time")));
  try {
    const question = { method: "GET", headers: {}, body: undefined, signal: stop.signal };
    const { status, header, text } = await ask(`${url}/ready`, question);
    const installation = header(installationHeader);
    if (status === 200 && (installation !== null || isReady(text))) return { installation };
    const why = `${status} ${text.trim().slice(0, 200)}`.trim();
    const notReady = new SvcError("unreachable", `${shownUrl(url)} is not ready (${why})`, {
      status,
      retryable: true,
    });
    if (installation === null) throw notReady;
    return { installation, notReady };
  } catch (error) {
    throw error instanceof SvcError ? error : unreachable(url, error);
  } finally {
    cancel();
  }
}

export const installationHeader = "x-svc-installation";
const otherCode = "other_installation";

/** No server may get the key now: nothing was sent to any. */
function noneLeft(failures: readonly SvcError[]): SvcError {
  const other = failures.find(({ code }) => code === otherCode);
  return new SvcError(other?.code ?? "unreachable", failures.map(({ message }) => message).join("; "), {
    retryable: failures.some(({ retryable }) => retryable),
    unsent: true,
    cause: failures.at(-1),
  });
}

/**
 * The addresses of one installation, of which one is used until it does not answer. Where there are several,
 * each must name the installation before it gets the key.
 */
export class Addresses {
  readonly #urls: readonly string[];
  /** Those of another installation, for good. */
  readonly #refused = new Map<string, SvcError>();
  /** As the first one that answered named it. */
  #installation: { id: string; url: string } | undefined;
  #place = 0;
  /** Whose turn it is to be asked first; undefined while the address in use answers. */
  #nextPlace: number | undefined;
  #choosing: Promise<void> | undefined;

  constructor(urls: readonly string[]) {
    this.#urls = urls;
    if (urls.length > 1) this.#nextPlace = 0;
  }

  /** The one in use. Behind `chosen` it may get the key. */
  get url(): string {
    return this.#urls[this.#place]!;
  }

  /** Undefined while one is in use that answers. Throws SvcError when none does. */
  chosen(): Promise<void> | undefined {
    if (this.#nextPlace === undefined) return undefined;
    this.#choosing ??= this.#choose(this.#nextPlace).finally(() => {
      this.#choosing = undefined;
    });
    return this.#choosing;
  }

  /** A connection to `url` has ended: the next asks first, with `isAway` another server before this one. */
  lost(url: string, isAway = false): void {
    if (this.#urls.length === 1 || url !== this.url) return;
    if (isAway) this.#nextPlace = this.#place + 1;
    else this.#nextPlace ??= this.#place;
  }

  /** Throws SvcError when this answer is another installation's: the key does not go there again. */
  answered(url: string, installation: string | null): void {
    if (this.#urls.length === 1) return;
    // A proxy may have answered, or who has the address now: it is asked before the next call.
    if (installation === null) {
      if (this.#installation) this.lost(url);
      return;
    }
    try {
      this.#requireOwn(url, installation);
    } catch (error) {
      this.lost(url, true);
      // What may be repeated is, at the next address.
      throw new SvcError(otherCode, (error as SvcError).message, { retryable: true });
    }
  }

  async #choose(firstPlace: number): Promise<void> {
    const failures: SvcError[] = [];
    let second: number | undefined;
    const choose = (place: number) => {
      this.#place = place;
      this.#nextPlace = undefined;
    };
    for (let turn = 0; turn < this.#urls.length; turn++) {
      const place = (firstPlace + turn) % this.#urls.length;
      const url = this.#urls[place]!;
      const found = this.#refused.get(url) ?? (await this.#ownAt(url));
      if (found === "ready") return choose(place);
      if (found === "not ready") second ??= place;
      else failures.push(found);
    }
    // Without its bus a node still serves; it is not ready, and neither is any other then.
    if (second === undefined) throw noneLeft(failures);
    choose(second);
  }

  /** Whether the server at `url` is ready; or why it may not get the key now. */
  async #ownAt(url: string): Promise<"ready" | "not ready" | SvcError> {
    try {
      const { installation, notReady } = await serverAt(url);
      // Which installation is meant, ready servers say.
      if (notReady && !this.#installation) return "not ready";
      this.#requireOwn(url, installation);
      return notReady ? "not ready" : "ready";
    } catch (error) {
      return error as SvcError;
    }
  }

  #requireOwn(url: string, named: string | null): void {
    const own = this.#installation;
    if (!own) {
      if (named !== null) this.#installation = { id: named, url };
      return;
    }
    if (named === own.id) return;
    const isNamed = named !== null;
    const belongs = isNamed ? `belongs to another installation (${named})` : "names no installation";
    const text = `${shownUrl(url)} ${belongs}, ${shownUrl(own.url)} to ${own.id}: it gets no key`;
    // A server of an older version names none until it is upgraded.
    const error = new SvcError(otherCode, text, { retryable: !isNamed });
    if (isNamed) this.#refused.set(url, error);
    throw error;
  }
}
