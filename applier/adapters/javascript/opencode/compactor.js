// OpenCode loads each file of its `plugins` folder; the plugin itself is in the folder beside this file.

export { default } from './compactor/index.js'
