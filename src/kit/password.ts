import { hashQueue } from "./hash-queue.ts";

/** 19 MiB and two passes (OWASP's floor for argon2id), in KiB. */
const argon2 = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Each hash holds its memory while it runs. */
const hashesAtOnceMax = 2;

const hashing = hashQueue(hashesAtOnceMax);

/** Who does not ask for a stranger has turns of his own, by `holder`: an org, an account. */
export const hashPassword = (password: string, holder = ""): Promise<string> =>
  hashing(holder, () => Bun.password.hash(password, argon2));

/** Whether the password is the one that was hashed. Undefined as `holder` is a stranger. */
export const verifyPassword = (
  password: string,
  hash: string,
  holder: string | undefined,
): Promise<boolean> => hashing(holder, () => Bun.password.verify(password, hash));
