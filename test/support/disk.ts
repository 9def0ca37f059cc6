import { chmodSync, existsSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
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
  remove(): Promise<void>;
}

const tool = (name: string, debianPackage: string) => findProgram([name, `/usr/sbin/${name}`], debianPackage);

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
  await run([tool("mkfs.ext4", "e2fsprogs"), "-q", "-F", join(place, "image")]);
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
