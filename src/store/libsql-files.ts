import {
  closeSync,
  existsSync,
  fsyncSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
} from "node:fs";
import { join } from "node:path";
import type { Connection, Driver } from "./libsql-drivers.ts";

/** Where the databases of environments lie: beside the store's own. */
export const environmentsFolder = (file: string): string => `${file}.environments`;

const busyMs = 5_000;
const databases = (folder: string): string[] =>
  existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith(".db")) : [];

function synced(path: string): void {
  const handle = openSync(path, "r");
  try {
    fsyncSync(handle);
  } finally {
    closeSync(handle);
  }
}

/**
 * Copies the databases of environments while they are worked with. They are copied before the store's own:
 * what a copy has folded is then in the log of the backup. Answers how many there are.
 */
export function copyEnvironments(file: string, to: string, driver: Driver): number {
  const from = environmentsFolder(file);
  const names = databases(from);
  const folder = environmentsFolder(to);
  const making = `${folder}.making-${process.pid}`;
  rmSync(making, { recursive: true, force: true });
  try {
    if (names.length > 0) mkdirSync(making, { recursive: true, mode: 0o700 });
    for (const name of names) {
      closeSync(openSync(join(making, name), "wx", 0o600));
      const reader = driver(join(from, name), busyMs);
      try {
        reader.prepare("VACUUM INTO ?").run([join(making, name)]);
      } finally {
        reader.close();
      }
      synced(join(making, name));
    }
    rmSync(folder, { recursive: true, force: true });
    if (names.length > 0) renameSync(making, folder);
    return names.length;
  } finally {
    rmSync(making, { recursive: true, force: true });
  }
}

/**
 * Puts each SQL projection of a restored store to where its table is: what the log has beyond that is folded
 * again, once.
 */
export function alignCursors(store: Connection, folder: string, driver: Driver): void {
  for (const file of databases(folder)) {
    const own = driver(join(folder, file), busyMs);
    try {
      const [table] = own.prepare("SELECT name FROM sqlite_schema WHERE name = 'svc@folds'").all([]);
      const rows = table ? own.prepare("SELECT table_name, position FROM `svc@folds`").all([]) : [];
      for (const { table_name: name, position } of rows) {
        const [base, generation] = String(name).split("@g");
        const at = Number(position);
        store
          .prepare(`UPDATE projection_generations SET cursor_position = ?, delivered = ?, position = ?
            WHERE generation = ? AND cursor_position > ? AND EXISTS (SELECT 1 FROM environment_databases d
              JOIN sql_projections s ON s.environment_id = d.environment_id
              WHERE d.name = ? AND s.table_name = ? AND s.environment_id = projection_generations.environment_id
                AND s.name = projection_generations.name)`)
          .run([at, at, at, Number(generation), at, file.replace(/\.db$/, ""), base!]);
      }
    } finally {
      own.close();
    }
  }
}
