import { chmodSync, closeSync, existsSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { findProgram, removeFolder, run } from "./process.ts";

/** A file system of its own in an image file, as a machine's disk is to the machine. */
export interface Disk {
  /** Where it is mounted. */
  folder: string;
  /**
   * The disk as a power cut now would leave it: what the file system has not written to it is not there. Who writes to it
   * must be frozen meanwhile.
   */
  cut(): Promise<Disk>;
  /** Takes all room that there is, but so many bytes; answers how to give it back. */
  fill(but?: number): () => Promise<void>;
  remove(): Promise<void>;
}

const tool = (name: string, debianPackage: string) => findProgram([name, `/usr/sbin/${name}`], debianPackage);

/** The second is a block: a large piece may be refused while there is room for less. */
const pieceBytes = [256 * 1024, 4 * 1024];

function fillFile(path: string, but: number): void {
  const file = openSync(path, "w");
  let bytes = 0;
  try {
    for (const size of pieceBytes) bytes += writeAll(file, new Uint8Array(size));
    if (but > 0) ftruncateSync(file, Math.max(0, bytes - but));
  } finally {
    closeSync(file);
  }
}

/** Writes that piece until there is no room for it; answers how many bytes were written. */
function writeAll(file: number, piece: Uint8Array): number {
  let bytes = 0;
  try {
    for (;;) bytes += writeSync(file, piece);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
    return bytes;
  }
}

async function mounted(place: string): Promise<Disk> {
  const folder = join(place, "disk");
  const image = join(place, "image");
  await run(["mkdir", "-p", folder]);
  await run([tool("mount", "mount"), "-o", "loop", image, folder]);
  chmodSync(folder, 0o777);
  return {
    folder,
    async cut() {
      const other = await newPlace();
      await run(["cp", "--sparse=always", image, join(other, "image")]);
      return mounted(other);
    },
    fill(but = 0) {
      const ballast = join(folder, "ballast");
      fillFile(ballast, but);
      return () => rm(ballast);
    },
    async remove() {
      if (existsSync(folder)) await run([tool("umount", "mount"), "--lazy", folder]);
      await removeFolder(place);
    },
  };
}

async function newPlace(): Promise<string> {
  const place = await mkdtemp(join(tmpdir(), "svc-disk-"));
  // PostgreSQL runs as another user and must get through.
  chmodSync(place, 0o711);
  return place;
}

/** Needs root, as mounting does. */
export async function makeDisk({ megabytes }: { megabytes: number }): Promise<Disk> {
  const place = await newPlace();
  await run(["truncate", "-s", `${megabytes}M`, join(place, "image")]);
  // No blocks for root alone: what is free is free for PostgreSQL's user, too.
  await run([tool("mkfs.ext4", "e2fsprogs"), "-q", "-F", "-m", "0", join(place, "image")]);
  return mounted(place);
}

/** Whether this user may mount at all, which takes root and a machine that lets root; who may not cannot cut the power. */
export const mayMount: boolean = await makeDisk({ megabytes: 4 }).then(
  async (disk) => {
    await disk.remove();
    return true;
  },
  () => false,
);
