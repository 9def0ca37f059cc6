import type { Io } from "./io.ts";

/** Opens a page in a browser of this machine, or says that there is none. */
export function openPage(url: string, { environment, note }: Pick<Io, "environment" | "note">): void {
  const name = process.platform === "darwin" ? "open" : "xdg-open";
  const program = Bun.which(name, { PATH: environment.PATH ?? "" });
  if (program === null) note(`${name} not found, so no browser opens: ${url}`);
  else Bun.spawn([program, url], { stdin: "ignore", stdout: "ignore", stderr: "ignore" });
}
