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

/** Which installation the server at `url` names, asked without a key; null when it names none. Throws SvcError. */
async function installationAt(url: string): Promise<string | null> {
  const stop = new AbortController();
  const cancel = after(nameMsMax, () => stop.abort(new Error("no answer in time")));
  try {
    const question = { method: "GET", headers: {}, body: undefined, signal: stop.signal };
    const { status, header, text } = await ask(`${url}/ready`, question);
    if (status < 500) return header(installationHeader);
    const why = `${status} ${text.trim().slice(0, 200)}`.trim();
    throw new SvcError("unreachable", `${shownUrl(url)} is not ready (${why})`, { status, retryable: true });
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
 * The addresses of one installation, of which one is used until it does not answer. Where there are several, each must name the
 * installation before it gets the key.
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

  /** A connection to `url` has ended: who connects next asks first, with `isAway` another server before this one. */
  lost(url: string, isAway = false): void {
    if (this.#urls.length === 1 || url !== this.url) return;
    this.#nextPlace ??= this.#place + (isAway ? 1 : 0);
  }

  /** Throws SvcError when this answer is another installation's: the key does not go there again. */
  answered(url: string, installation: string | null): void {
    if (this.#urls.length === 1 || installation === null) return;
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
    for (let turn = 0; turn < this.#urls.length; turn++) {
      const place = (firstPlace + turn) % this.#urls.length;
      const url = this.#urls[place]!;
      const failure = this.#refused.get(url) ?? (await this.#failureOf(url));
      if (failure) failures.push(failure);
      else {
        this.#place = place;
        this.#nextPlace = undefined;
        return;
      }
    }
    throw noneLeft(failures);
  }

  /** Why the server at `url` may not get the key now. */
  async #failureOf(url: string): Promise<SvcError | undefined> {
    try {
      this.#requireOwn(url, await installationAt(url));
      return undefined;
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
