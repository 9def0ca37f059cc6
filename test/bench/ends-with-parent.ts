// Preloaded into every program of the bench: when the bench is gone, however it ended, its pipe ends and so do they.
process.stdin.on("end", () => process.exit(1));
process.stdin.resume();
(process.stdin as { unref?: () => void }).unref?.();
