/** Tells how far the demo is: one live line on a terminal, a plain line every tenth elsewhere. */
export type Progress = ReturnType<typeof createProgress>;

const barWidth = 30;

export function createProgress(out: NodeJS.WriteStream = process.stdout) {
  let live = false;
  let lastTenth = -1;
  const clear = () => {
    if (live) out.write("\r\x1b[K");
    live = false;
  };
  return {
    show(done: number, total: number, what: string) {
      const share = total === 0 ? 1 : done / total;
      if (out.isTTY) {
        const filled = Math.round(share * barWidth);
        out.write(
          `\r\x1b[K  [${"#".repeat(filled)}${".".repeat(barWidth - filled)}] ${done}/${total} ${what}`,
        );
        live = true;
        return;
      }
      const tenth = Math.floor(share * 10);
      if (tenth > lastTenth) out.write(`  ${done}/${total} ${what}\n`);
      lastTenth = Math.max(tenth, lastTenth);
    },
    /** A line that stays. */
    say(text: string) {
      clear();
      out.write(`${text}\n`);
    },
  };
}
