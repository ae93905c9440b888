// The build: hashed files under assets/, no inlined data, nothing that the page's
// Content-Security-Policy would refuse. `DURIO_UI_OUT` builds into another folder.
import { defineConfig } from "vite";

export default defineConfig({
  base: "./",
  publicDir: false,
  build: {
    outDir: process.env.DURIO_UI_OUT ?? "../src/durio/web/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    target: ["chrome123", "firefox125", "safari17.5"],
    rolldownOptions: {
      output: {
        entryFileNames: "assets/[name]-[hash].js",
        chunkFileNames: "assets/[name]-[hash].js",
        assetFileNames: "assets/[name]-[hash][extname]",
      },
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
