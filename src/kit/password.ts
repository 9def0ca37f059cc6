import { semaphore } from "./semaphore.ts";

/** 19 MiB and two passes (OWASP's floor for argon2id), in KiB. */
const argon2 = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Each hash holds its memory while it runs. */
const hashesAtOnceMax = 2;

const hashing = semaphore(hashesAtOnceMax);

export const hashPassword = (password: string): Promise<string> =>
  hashing(() => Bun.password.hash(password, argon2));

/** Whether the password is the one that was hashed. */
export const verifyPassword = (password: string, hash: string): Promise<boolean> =>
  hashing(() => Bun.password.verify(password, hash));
