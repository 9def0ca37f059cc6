import {
  chmodSync,
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { dirname, resolve } from "node:path";
import type { Instant } from "../kit/clock.ts";
import { BackupRefusal, type Content, requireDatabaseFile, sync, verified } from "./libsql-backup.ts";
import type { Driver } from "./libsql-drivers.ts";
import { alignCursors, copyEnvironments, environmentsFolder } from "./libsql-files.ts";
import { claimFile } from "./libsql-lock.ts";
import { epochFloorAt, raiseEpochsText } from "./schema.ts";

export interface RestoreOptions {
  from: string;
  file: string;
  force: boolean;
  driver: Driver;
  now: Instant;
  /** What the name of the database that was there before ends with. */
  stamp: string;
}

export interface Restored {
  content: Content;
  /** Where the database that was there before is now. */
  aside: string | undefined;
}

const filled = (path: string): boolean => existsSync(path) && statSync(path).size > 0;

/** Sets the database at `path` aside so that it can be opened there; the caller holds the claim. */
function keepAside(path: string, aside: string, driver: Driver): void {
  try {
    const old = driver(path, 0);
    try {
      old.exec("PRAGMA wal_checkpoint(TRUNCATE)");
    } finally {
      old.close();
    }
  } catch {
    // Damaged, which may be why it is replaced: it is kept as it is, with its log.
  }
  if (filled(`${path}-wal`)) renameSync(`${path}-wal`, `${aside}-wal`);
  for (const left of [`${path}-wal`, `${path}-shm`]) rmSync(left, { force: true });
  // A second name, so that there always is a database under the first: a server would make an empty one.
  linkSync(path, aside);
}

/** The databases of environments go where their store's goes; without a place for them they are of no use. */
function moveEnvironments(file: string, to: string | undefined): void {
  const folder = environmentsFolder(file);
  if (!existsSync(folder)) return;
  if (to === undefined) rmSync(folder, { recursive: true });
  else renameSync(folder, environmentsFolder(to));
}

/**
 * Puts a backup in a database's place. The copy is whole, checked and on the disk before anything changes;
 * then one rename decides. Every log gets a new epoch, so that readers with an older position are refused.
 */
export function restoreLibsql(options: RestoreOptions): Restored {
  const { force, driver, now, stamp } = options;
  const from = resolve(options.from);
  const file = resolve(options.file);
  requireDatabaseFile(from);
  if (filled(`${from}-wal`))
    throw new BackupRefusal(
      `${from} has a log beside it (-wal), so it is a database in use and no backup: use svc backup`,
    );
  if (existsSync(file) && realpathSync(file) === realpathSync(from))
    throw new BackupRefusal(`${from} is the database itself`);
  const overExisting = () => {
    if (!force && filled(file))
      throw new BackupRefusal(`${file} exists; --force sets it aside and replaces it`);
  };
  overExisting();

  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  const copy = `${file}.restoring-${process.pid}`;
  try {
    copyFileSync(from, copy);
    chmodSync(copy, 0o600);
    copyEnvironments(from, copy, driver);
    const content = verified(copy, { name: from, driver }, (connection, found) => {
      alignCursors(connection, environmentsFolder(copy), driver);
      connection.prepare(raiseEpochsText).run([epochFloorAt(now), epochFloorAt(now)]);
      return found;
    });
    sync(copy);
    const claim = claimFile(file, driver);
    try {
      // Again: a server may have come and gone since.
      overExisting();
      const aside = filled(claim.path) ? `${claim.path}.before-restore-${stamp}` : undefined;
      if (aside !== undefined) keepAside(claim.path, aside, driver);
      moveEnvironments(claim.path, aside);
      moveEnvironments(copy, claim.path);
      renameSync(copy, claim.path);
      sync(dirname(claim.path));
      return { content, aside };
    } finally {
      claim.release();
    }
  } finally {
    for (const left of [copy, `${copy}-journal`]) rmSync(left, { force: true });
    rmSync(environmentsFolder(copy), { recursive: true, force: true });
  }
}
