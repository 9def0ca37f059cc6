import type { Clock } from "./clock.ts";

/** The prefixes of spec.md 'Identifier prefixes'; the kind is part of the id. */
export type IdKind =
  | "evt"
  | "fn"
  | "run"
  | "step"
  | "job"
  | "env"
  | "proj"
  | "org"
  | "role"
  | "pol"
  | "usr"
  | "puser"
  | "prole"
  | "paud"
  | "whs"
  | "sub"
  | "group"
  | "ob"
  | "wrk"
  | "node"
  | "req"
  | "aud";

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

export function systemIds(clock: Pick<Clock, "now">): Ids {
  const random = new Uint8Array(16);
  let lastAt = 0;
  let lastTime = "";
  let lastTail = new Uint8Array(16);
  // Within one millisecond the tail counts up, so that ids of one process sort by creation.
  const tail = (at: number): Uint8Array => {
    if (at !== lastAt) {
      lastAt = at;
      lastTime = timePart(at);
      crypto.getRandomValues(random);
      lastTail = random.map((byte) => byte & 31);
      lastTail[0] = lastTail[0]! & 15;
      return lastTail;
    }
    for (let place = 15; place >= 0; place--) {
      const digit = lastTail[place]! + 1;
      lastTail[place] = digit & 31;
      if (digit < 32) break;
    }
    return lastTail;
  };
  return {
    next(kind) {
      const digits = tail(Math.max(clock.now(), lastAt));
      let text = "";
      for (let place = 0; place < 16; place++) text += alphabet[digits[place]!];
      return `${kind}_${lastTime}${text}`;
    },
    uuid: () => crypto.randomUUID(),
    secret: (bytes) => hex(crypto.getRandomValues(new Uint8Array(bytes))),
    chance: () => Math.random(),
  };
}
