import {
  closeSync,
  constants,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { roleIdOf } from "../../../gate/actions.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import type { Basics } from "../../../store/store.ts";
import { defaultEnvironmentId, defaultOrgId } from "../tenancy/rules.ts";
import type { NewUser, Users } from "../users/service.ts";
import type { NewKey } from "./rows.ts";
import { keyHash } from "./rules.ts";
import type { Keys } from "./service.ts";

/** The content of the key file; operators' scripts read it. */
interface BootstrapFile {
  key: string;
  key_id: string;
  org_id: string;
  role: string;
  dashboard_password?: string;
  timestamp: string;
}

/**
 * The file before its key is valid. Its name has the start of the key's hash, so that a later boot can match
 * the two.
 */
const pendingName = (path: string, hash: string) => `${basename(path)}.${hash.slice(0, 16)}.`;

function syncFolder(path: string): void {
  const folder = openSync(dirname(path), constants.O_RDONLY);
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}

/** Writes the content beside `path`, readable by the owner alone and durable; answers where. */
export function writePending(path: string, hash: string, ending: string, content: BootstrapFile): string {
  const pending = join(dirname(path), `${pendingName(path, hash)}${ending}`);
  const file = openSync(pending, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL, 0o400);
  try {
    writeSync(file, `${JSON.stringify(content, null, 2)}\n`);
    fsyncSync(file);
  } catch (error) {
    rmSync(pending, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
  return pending;
}

/** Gives the file its name, in place of any file that had it. */
function putInPlace(pending: string, path: string): void {
  renameSync(pending, path);
  syncFolder(path);
}

function removePending(pending: string): void {
  rmSync(pending, { force: true });
}

/** The file that a boot left behind when it died between making its key valid and naming the file. */
function findPending(path: string, hash: string): string | undefined {
  try {
    const found = readdirSync(dirname(path)).find((name) => name.startsWith(pendingName(path, hash)));
    return found && join(dirname(path), found);
  } catch {
    return undefined;
  }
}

/** Whether the file at `path` carries the key of this hash. */
function holdsKey(path: string, hash: string): boolean {
  try {
    const content = JSON.parse(readFileSync(path, "utf8")) as Partial<BootstrapFile>;
    return typeof content.key === "string" && keyHash(content.key) === hash;
  } catch {
    return false;
  }
}

export const bootstrapKeyId = "ak_admin_bootstrap";
export const dashboardEmail = "admin@svc.local";
const role = "admin";

export interface BootstrapOptions extends Basics<"store" | "clock" | "ids" | "log"> {
  keys: Keys;
  users: Users;
  path: string;
  /** Given by the operator instead of generated. */
  adminKey: string | undefined;
  adminPassword: string | undefined;
  /** Told of the first dashboard user, when this boot made it. */
  onFirstUser?: (id: string) => void;
}

export interface Bootstrapped {
  /**
   * `issued`: by this boot; `failed`: the file could not be written, so there is no key; `existing`: nothing
   * to do.
   */
  key: "issued" | "failed" | "existing";
  /** The password, when this boot made one that no file holds; for the banner, never for the log. */
  password?: string;
}

const errorText = (error: unknown) => (error instanceof Error ? error.message : String(error));

interface BootstrapPlan {
  key: { row: NewKey; file?: string; fileError?: string } | undefined;
  user: NewUser | undefined;
}

/**
 * Creates the first admin key and the first dashboard user, each only while there is none at all: a bootstrap
 * key that was deleted on purpose must not come back while there is another key.
 *
 * The order is: write the file under a temporary name, insert key and user in one transaction, rename the
 * file. A crash before the transaction leaves no key; a crash after it leaves a valid key whose file the next
 * boot renames. Of two nodes that boot at once, one inserts and the other removes its file.
 */
export async function bootstrap(options: BootstrapOptions): Promise<Bootstrapped> {
  const { store, clock, ids, log, keys, users, path } = options;

  const issued = (fields: Record<string, unknown>) =>
    log.info("BOOTSTRAP_ADMIN_KEY_ISSUED", { key_id: bootstrapKeyId, ...fields });
  const notIssued = (error: unknown): Bootstrapped => {
    log.error("BOOTSTRAP_ADMIN_KEY_ISSUED", {
      key_id: bootstrapKeyId,
      issued: false,
      file_path_error: `${path}: ${errorText(error)}`,
    });
    return { key: "failed" };
  };

  /**
   * Renames the file of a key that is already valid. When that fails the key is deleted: its text would be
   * lost.
   */
  const publishFile = async (pending: string, hash: string, user?: NewUser): Promise<Bootstrapped> => {
    try {
      putInPlace(pending, path);
    } catch (error) {
      // Another node on this machine may have renamed it already, as the file of a boot that died.
      if (holdsKey(path, hash)) return { key: "existing" };
      await store.write(async (session) => {
        await keys.removeExactly(session, bootstrapKeyId, hash);
        if (user) await users.remove(session, user.id);
      });
      removePending(pending);
      return notIssued(error);
    }
    issued({ file_path: path });
    return { key: "issued" };
  };

  const knownHash = await keys.hashOf(bootstrapKeyId);
  const left = knownHash === undefined ? undefined : findPending(path, knownHash);
  if (knownHash !== undefined && left !== undefined) return publishFile(left, knownHash);

  const [anyKey, anyUser] = await Promise.all([keys.any(), users.any()]);
  if (anyKey && anyUser) return { key: "existing" };

  const password = options.adminPassword ?? ids.secret(12);
  const wanted: BootstrapPlan = { key: undefined, user: undefined };
  if (!anyUser) {
    const roles = [{ id: roleIdOf(role), name: role }];
    const user = { orgId: defaultOrgId, email: dashboardEmail, name: "Admin", roles, password };
    wanted.user = await users.prepare(user);
  }
  if (!anyKey) {
    const { key, row } = keys.make({
      id: bootstrapKeyId,
      orgId: defaultOrgId,
      environmentId: defaultEnvironmentId,
      name: "Bootstrap admin",
      roleIds: [roleIdOf(role)],
      ...(options.adminKey !== undefined && { key: options.adminKey }),
    });
    const content: BootstrapFile = {
      key,
      key_id: row.id,
      org_id: defaultOrgId,
      role,
      ...(wanted.user && { dashboard_password: password }),
      timestamp: rfc3339(clock.now()),
    };
    try {
      wanted.key = { row, file: writePending(path, row.hash, ids.secret(4), content) };
    } catch (error) {
      // A key that the operator chose needs no file. A generated key without a file would be lost.
      if (options.adminKey === undefined) return notIssued(error);
      wanted.key = { row, fileError: `${path}: ${errorText(error)}` };
    }
  }

  // When this throws the file stays: the commit may have happened, and then the next boot renames the file.
  const inserted = await store.write(async (session) => ({
    key: wanted.key !== undefined && (await keys.insert(session, wanted.key.row)),
    user: wanted.user !== undefined && (await users.insert(session, wanted.user)),
  }));

  if (inserted.user && wanted.user) options.onFirstUser?.(wanted.user.id);
  const file = wanted.key?.file;
  const madeUp = inserted.user && options.adminPassword === undefined ? { password } : {};
  if (!inserted.key || wanted.key === undefined) {
    if (file) removePending(file);
    return { key: "existing", ...madeUp };
  }
  if (file === undefined) {
    issued({ file_path_error: wanted.key.fileError });
    return { key: "issued", ...madeUp };
  }
  return publishFile(file, wanted.key.row.hash, inserted.user ? wanted.user : undefined);
}
