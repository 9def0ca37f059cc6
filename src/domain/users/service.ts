import { atMost } from "../../kit/at-most.ts";
import type { Clock } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import type { Session, Store } from "../../store/store.ts";
import type { NewUser } from "./rows.ts";
import * as rows from "./rows.ts";

export type { NewUser } from "./rows.ts";

export interface Users {
  /** Whether there is any user at all. */
  any(): Promise<boolean>;
  /** The row of a user to be inserted. Hashing takes a tenth of a second: never do it inside a write. */
  prepare(user: {
    orgId: string;
    email: string;
    name: string;
    password: string;
    roles: string[];
  }): Promise<NewUser>;
  /** False when the email is taken. */
  insert(session: Session, user: NewUser): Promise<boolean>;
  remove(session: Session, id: string): Promise<void>;
}

/** 19 MiB and two passes (OWASP's floor for argon2id), in KiB. */
const argon2 = { algorithm: "argon2id", memoryCost: 19_456, timeCost: 2 } as const;
/** Each hash holds its memory while it runs. */
const hashesAtOnceMax = 2;

const hashing = atMost(hashesAtOnceMax);

export const hashPassword = (password: string): Promise<string> =>
  hashing(() => Bun.password.hash(password, argon2));

/** Whether the password is the one that was hashed. */
export const verifyPassword = (password: string, hash: string): Promise<boolean> =>
  hashing(() => Bun.password.verify(password, hash));

export function users({ store, clock, ids }: { store: Store; clock: Clock; ids: Ids }): Users {
  return {
    any: () => rows.anyUser(store),
    async prepare({ password, ...user }) {
      return { id: ids.next("usr"), ...user, passwordHash: await hashPassword(password), at: clock.now() };
    },
    insert: rows.insertUser,
    remove: rows.deleteUser,
  };
}
