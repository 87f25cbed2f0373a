"""The real megenginelite 1.13: copy in, forward, wait, array out. The option `tuned` asks for its faster layout."""

from loop import Task, serve

import megenginelite as lite


def load(task):
    config = lite.LiteConfig()
    if task.option == "tuned":
        config.options.enable_nchw88 = 1
        config.options.weight_preprocess = 1
    network = lite.LiteNetwork(config=config)
    network.threads_number = task.threads
    network.load(task.model)
    pairs = [(network.get_io_tensor(f"input_{k}"), array) for k, array in enumerate(task.inputs)]
    output = network.get_io_tensor(network.get_output_name(0))

    def run():
        for tensor, array in pairs:
            tensor.set_data_by_copy(array)
        network.forward()
        network.wait()
        return [output.to_numpy()]

    return run, {"version": "1.13.0"}


if __name__ == "__main__":
    serve(Task(), load)
