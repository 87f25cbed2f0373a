# ruff: noqa
# fmt: off
# The quick start program that MegEngine publishes for its own megenginelite package, line for line. It is given a model
# whose input is called "data" and takes pictures of 3x224x224, as `examples/megengine_digits/digits.mge` does.

from megenginelite import *
import numpy as np
import argparse

def main():
   parser = argparse.ArgumentParser(description='test the lite python interface')
   parser.add_argument('input', help='the inference model file')
   args = parser.parse_args()

   network = LiteNetwork()
   network.load(args.input)

   input_tensor = network.get_io_tensor("data")
   # copy input data to input_tensor of the network
   input_data = np.random.uniform(0, 1, (1, 3, 224, 224)).astype("float32")
   input_tensor.set_data_by_copy(input_data)

   # forward the model
   network.forward()
   network.wait()

   output_names = network.get_all_output_name()
   output_tensor = network.get_io_tensor(output_names[0])

   output_data = output_tensor.to_numpy()
   print('shufflenet output max={}, sum={}'.format(output_data.max(), output_data.sum()))

if __name__ == '__main__':
   main()
