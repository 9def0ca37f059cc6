import type { Clock } from "./clock.ts";

/** Prefixes of ids: the kind is part of the id. */
export type IdKind =
  | "evt"
  | "fn"
  | "run"
  | "step"
  | "job"
  | "env"
  | "ins"
  | "iss"
  | "proj"
  | "org"
  | "role"
  | "pol"
  | "usr"
  | "puser"
  | "prole"
  | "paud"
  | "whs"
  | "whd"
  | "whe"
  | "sub"
  | "group"
  | "ob"
  | "wrk"
  | "node"
  | "req"
  | "aud"
  | "snap"
  | "rebuild"
  | "rep"
  | "stream"
  | "dly"
  | "alr";

export interface Ids {
  /** `{kind}_{26 characters}`: 48 bits of time, 82 bits of chance; ids of one process sort by creation. */
  next(kind: IdKind): string;
  /** RFC 9562 version 4. */
  uuid(): string;
  /** `bytes` random bytes as lowercase hex. */
  secret(bytes: number): string;
  /** A number in [0, 1), for jitter only. */
  chance(): number;
}

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";

function timePart(at: number): string {
  let rest = at;
  let text = "";
  for (let place = 0; place < 10; place++) {
    text = alphabet[rest % 32] + text;
    rest = Math.floor(rest / 32);
  }
  return text;
}

/** When an id was made, to the millisecond; undefined for a text of another form. */
export function timeOfId(id: string): number | undefined {
  const start = id.indexOf("_") + 1;
  if (start === 0 || id.length !== start + 26) return undefined;
  let at = 0;
  for (let place = start; place < start + 10; place++) {
    const digit = alphabet.indexOf(id[place]!);
    if (digit < 0) return undefined;
    at = at * 32 + digit;
  }
  return at;
}

const hex = (bytes: Uint8Array) =>
  Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("hex");

/** The last two digits of an id, for each number below 1,024. */
const endings = Array.from({ length: 1_024 }, (_, number) => alphabet[number >> 5]! + alphabet[number & 31]!);

export function systemIds(clock: Pick<Clock, "now">): Ids {
  const digits = new Uint8Array(14);
  let lastAt = 0;
  let lastTime = "";
  /** Of the time and the first 14 digits of chance. */
  let head = "";
  let ending = 0;

  const writeHead = () => {
    head = lastTime + Array.from(digits, (digit) => alphabet[digit]).join("");
  };

  function begin(at: number): void {
    lastAt = at;
    lastTime = timePart(at);
    const chance = crypto.getRandomValues(new Uint8Array(16));
    for (let place = 0; place < 14; place++) digits[place] = chance[place]! & 31;
    digits[0] = digits[0]! & 15;
    ending = ((chance[14]! & 31) << 5) | (chance[15]! & 31);
    writeHead();
  }

  // Within one millisecond the tail counts up, so that ids of one process sort by creation.
  function countUp(): void {
    ending = (ending + 1) & 1_023;
    if (ending !== 0) return;
    for (let place = 13; place >= 0; place--) {
      digits[place] = (digits[place]! + 1) & 31;
      if (digits[place] !== 0) break;
    }
    writeHead();
  }

  return {
    next(kind) {
      const at = clock.now();
      if (at > lastAt) begin(at);
      else countUp();
      return `${kind}_${head}${endings[ending]!}`;
    },
    uuid: () => crypto.randomUUID(),
    secret: (bytes) => hex(crypto.getRandomValues(new Uint8Array(bytes))),
    chance: () => Math.random(),
  };
}

/** Whether a text that a caller sent may be the id of a run. */
export const isRunId = (text: string): boolean => /^run_[A-Za-z0-9-]{1,64}$/.test(text);
