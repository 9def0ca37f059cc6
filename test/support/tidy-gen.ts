import { mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fromBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";

const root = resolve(import.meta.dir, "../..");

interface Named {
  name: string;
}

/** Full names of what a file declares, by the path that its comments are filed under. */
function namesByPath(file: FileDescriptorProto): Map<string, string> {
  const names = new Map<string, string>();
  const put = (kind: number, at: number, { name }: Named, members: readonly Named[]) => {
    names.set(`${kind},${at}`, `${file.package}.${name}`);
    for (const [index, member] of members.entries())
      names.set(`${kind},${at},2,${index}`, `${file.package}.${name}.${member.name}`);
  };
  for (const [at, message] of file.messageType.entries()) put(4, at, message, message.field);
  for (const [at, list] of file.enumType.entries()) put(5, at, list, list.value);
  for (const [at, service] of file.service.entries()) put(6, at, service, service.method);
  return names;
}

/**
 * The comments of `proto/` by full name, for `/openapi.json`: in what the plugin writes no program can read them.
 */
function commentsText(image: Uint8Array): string {
  const rows = fromBinary(FileDescriptorSetSchema, image)
    .file.filter((file) => file.package === "svc.v1")
    .flatMap((file) => {
      const names = namesByPath(file);
      return (file.sourceCodeInfo?.location ?? []).flatMap(({ path, leadingComments = "" }) => {
        const name = names.get(path.join(","));
        const text = leadingComments.replace(/\s+/g, " ").trim();
        return name === undefined || text === ""
          ? []
          : `  ${JSON.stringify(name)}: ${JSON.stringify(text)},\n`;
      });
    });
  const head = "// Written by `bun run generate`: what the comments of proto/ say, by full name.\n\n";
  return `${head}export const comments: Readonly<Record<string, string>> = {\n${rows.join("")}};\n`;
}

/**
 * Writes the code of `proto/` to `src/gen` below the folder `into`. The plugin is started by the Bun that runs this,
 * whatever the machine has on its PATH; nothing is fetched.
 */
export async function generate(into: string): Promise<void> {
  const bin = await mkdtemp(join(tmpdir(), "svc-generate-"));
  const buf = async (...words: string[]) => {
    const child = Bun.spawn([join(root, "node_modules/.bin/buf"), ...words], {
      cwd: root,
      env: { ...process.env, PATH: `${bin}:${process.env.PATH ?? ""}` },
      stderr: "pipe",
    });
    const errors = await new Response(child.stderr).text();
    if ((await child.exited) !== 0) throw new Error(`buf ${words[0]} failed:\n${errors}`);
  };
  try {
    await symlink(process.execPath, join(bin, "bun"));
    await buf("generate", "proto", "--template", "proto/buf.gen.yaml", "-o", into);
    const image = join(bin, "image.binpb");
    await buf("build", "proto", "-o", image);
    const text = commentsText(await Bun.file(image).bytes());
    await Bun.write(join(into, "src/gen/svc/v1/comments.ts"), text);
  } finally {
    await rm(bin, { recursive: true, force: true });
  }
}

if (import.meta.main) await generate(root);
