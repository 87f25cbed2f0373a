"""Linear algebra and recurrent cases."""

from mindspore import float16, nn
from mindspore.ops import operations as P

from mindir_fixtures.table import Case, case, f16, f32, f64, i32, values


def cases() -> list[Case]:
    return [*products(), *dense(), *einsum_and_friends(), *recurrent(), *attention()]


def products() -> list[Case]:
    return [
        case("matmul", "ops.matmul(x, y)", f32(3, 5), f32(5, 7)),
        case("matmul_primitive_ta", "self.op(x, y)", f32(5, 3), f32(5, 7), op=P.MatMul(transpose_a=True)),
        case("matmul_primitive_tb", "self.op(x, y)", f32(3, 5), f32(7, 5), op=P.MatMul(transpose_b=True)),
        case("matmul_primitive_ta_tb", "self.op(x, y)", f32(5, 3), f32(7, 5), op=P.MatMul(True, True)),
        case("matmul_operator", "x @ y", f32(2, 3, 5), f32(5, 7)),
        case("matmul_rank1_left", "ops.matmul(x, y)", f32(5), f32(5, 7)),
        case("matmul_rank1_right", "ops.matmul(x, y)", f32(2, 3, 5), f32(5)),
        case("matmul_rank1_both", "ops.matmul(x, y)", f32(5), f32(5)),
        case("matmul_broadcast", "ops.matmul(x, y)", f32(2, 1, 3, 5), f32(7, 5, 2)),
        case("matmul_float16", "ops.matmul(x, y)", f16(3, 5), f16(5, 7)),
        case("matmul_float64", "ops.matmul(x, y)", f64(3, 5), f64(5, 7)),
        case("matmul_int32", "self.op(x, y)", i32(3, 5), i32(5, 7), op=P.MatMul()),
        case("batch_matmul", "self.op(x, y)", f32(2, 3, 5), f32(2, 5, 7), op=P.BatchMatMul()),
        case("batch_matmul_ta", "self.op(x, y)", f32(2, 5, 3), f32(2, 5, 7), op=P.BatchMatMul(transpose_a=True)),
        case("batch_matmul_tb", "self.op(x, y)", f32(2, 3, 4, 5), f32(2, 3, 7, 5), op=P.BatchMatMul(transpose_b=True)),
        case("batch_matmul_ta_tb", "self.op(x, y)", f32(2, 5, 3), f32(2, 7, 5), op=P.BatchMatMul(True, True)),
        case("batch_matmul_broadcast", "self.op(x, y)", f32(2, 1, 3, 5), f32(1, 3, 5, 2), op=P.BatchMatMul()),
        case(
            "batch_matmul_dynamic",
            "ops.bmm(x, y)",
            f32(2, 3, 5),
            f32(2, 5, 7),
            shapes=[(None, None, 5), (None, 5, None)],
        ),
        case("bmm", "ops.bmm(x, y)", f32(2, 3, 5), f32(2, 5, 7)),
        case("bmm_mint", "mint.bmm(x, y)", f32(2, 3, 5), f32(2, 5, 7)),
        case("matmul_mint", "mint.matmul(x, y)", f32(2, 3, 5), f32(5, 7)),
        case("mm", "ops.mm(x, y)", f32(3, 5), f32(5, 7)),
        case("mv", "ops.mv(x, y)", f32(3, 5), f32(5)),
        case("dot", "ops.dot(x, y)", f32(3, 5), f32(5, 2)),
        case("outer", "ops.outer(x, y)", f32(3), f32(5)),
        case("inner", "ops.inner(x, y)", f32(3, 5), f32(2, 5)),
        case("ger", "ops.ger(x, y)", f32(3), f32(5)),
        case("tensor_dot", "ops.tensor_dot(x, y, ((0, 1), (1, 0)))", f32(3, 5, 2), f32(5, 3, 4)),
        case("kron", "ops.kron(x, y)", f32(2, 3), f32(3, 2)),
        case("addmm", "ops.addmm(x, y, z, beta=0.5, alpha=2)", f32(3, 7), f32(3, 5), f32(5, 7)),
        case("baddbmm", "ops.baddbmm(x, y, z, beta=0.5, alpha=2)", f32(2, 3, 7), f32(2, 3, 5), f32(2, 5, 7)),
        case("baddbmm_mint", "mint.baddbmm(x, y, z, beta=0.5, alpha=2)", f32(2, 3, 7), f32(2, 3, 5), f32(2, 5, 7)),
        case("addbmm", "ops.addbmm(x, y, z, beta=0.5, alpha=2)", f32(3, 7), f32(2, 3, 5), f32(2, 5, 7)),
        case("addmv", "ops.addmv(x, y, z, beta=0.5, alpha=2)", f32(3), f32(3, 5), f32(5)),
        case("addr", "ops.addr(x, y, z, beta=0.5, alpha=2)", f32(3, 5), f32(3), f32(5)),
        case("multi_dot", "ops.matmul(ops.matmul(x, y), z)", f32(2, 3), f32(3, 5), f32(5, 7)),
    ]


def dense() -> list[Case]:
    return [
        case("dense", nn.Dense(5, 7), f32(3, 5)),
        case("dense_no_bias", nn.Dense(5, 7, has_bias=False), f32(3, 5)),
        case("dense_rank3", nn.Dense(5, 7), f32(2, 3, 5)),
        case("dense_rank4_activation", nn.Dense(5, 7, activation="relu"), f32(2, 3, 2, 5)),
        case("dense_float16", nn.Dense(5, 7), f16(3, 5), dtype="float16"),
        case("dense_mixed_precision", nn.Dense(5, 7).to_float(float16), f32(3, 5)),
        case("dense_dynamic", nn.Dense(5, 7), f32(2, 3, 5), shapes=[(None, None, 5)]),
        case("dense_function", "ops.dense(x, y, z)", f32(2, 3, 5), f32(7, 5), f32(7)),
        case("dense_function_no_bias", "ops.dense(x, y)", f32(3, 5), f32(7, 5)),
        case("linear_mint", "mint.nn.functional.linear(x, y, z)", f32(2, 3, 5), f32(7, 5), f32(7)),
        case("bidense", nn.BiDense(3, 5, 2), f32(4, 3), f32(4, 5)),
        case("mlp_shared_weight", "self.a(ops.tanh(self.a(x)))", f32(3, 5), a=nn.Dense(5, 5)),
        case("embedding_nn", nn.Embedding(11, 5), i32(2, 3, low=0, high=11)),
        case("embedding_one_hot", nn.Embedding(11, 5, use_one_hot=True), i32(2, 3, low=0, high=11)),
        case("embedding_lookup", nn.EmbeddingLookup(11, 5), i32(2, 3, low=0, high=11)),
        case("embedding_mint", "mint.nn.functional.embedding(x, y)", i32(2, 3, low=0, high=11), f32(11, 5)),
    ]


def einsum_and_friends() -> list[Case]:
    return [
        case("einsum_mint", "mint.einsum('bij,bjk->bik', x, y)", f32(2, 3, 5), f32(2, 5, 7)),
        case("cross", "ops.cross(x, y, dim=1)", f32(5, 3), f32(5, 3)),
        case("cdist", "ops.cdist(x, y)", f32(2, 3, 5), f32(2, 4, 5)),
        case("cdist_p1", "ops.cdist(x, y, p=1.0)", f32(3, 5), f32(4, 5)),
        case("trace", "ops.trace(x)", f32(5, 5)),
        case("diag_vector", "ops.diag(x)", f32(5)),
        case("diag_part", "P.DiagPart()(x)", f32(5, 5)),
        case("diagonal", "ops.diagonal(x, 1, 0, 1)", f32(3, 5)),
        case("matrix_inverse", "ops.inverse(x)", values([[4, 1, 0], [1, 3, 1], [0, 1, 2]])),
        case("matrix_determinant", "ops.det(x)", values([[4, 1, 0], [1, 3, 1], [0, 1, 2]])),
        case("cosine_similarity", "ops.cosine_similarity(x, y, 1)", f32(3, 5), f32(3, 5)),
        case("pdist", "ops.pdist(x)", f32(4, 5)),
    ]


def recurrent() -> list[Case]:
    lstm = nn.LSTM
    return [
        case("lstm", lstm(3, 5), f32(7, 2, 3)),
        case("lstm_no_bias", lstm(3, 5, has_bias=False), f32(7, 2, 3)),
        case("lstm_batch_first", lstm(3, 5, batch_first=True), f32(2, 7, 3)),
        case("lstm_bidirectional", lstm(3, 5, bidirectional=True), f32(4, 2, 3)),
        case("lstm_two_layers_bidirectional", lstm(3, 4, num_layers=2, bidirectional=True), f32(3, 2, 3)),
        case("lstm_with_state", "self.net(x, (y, z))", f32(4, 2, 3), f32(1, 2, 5), f32(1, 2, 5), net=lstm(3, 5)),
        case("gru", nn.GRU(3, 5), f32(2, 2, 3)),
        case("rnn_tanh", nn.RNN(3, 5), f32(2, 2, 3)),
        case("lstm_cell", "self.net(x, (y, z))", f32(2, 3), f32(2, 5), f32(2, 5), net=nn.LSTMCell(3, 5)),
        case("gru_cell", "self.net(x, y)", f32(2, 3), f32(2, 5), net=nn.GRUCell(3, 5)),
        case("rnn_cell", "self.net(x, y)", f32(2, 3), f32(2, 5), net=nn.RNNCell(3, 5)),
    ]


def attention() -> list[Case]:
    return [
        case(
            "multihead_attention", "self.net(x, x, x)", f32(2, 5, 6), net=nn.MultiheadAttention(6, 3, batch_first=True)
        ),
        case("transformer_encoder_layer", nn.TransformerEncoderLayer(6, 2, 10, batch_first=True), f32(2, 5, 6)),
        case(
            "scaled_dot_product_attention",
            "ops.bmm(ops.softmax(ops.bmm(x, y.swapaxes(1, 2)) / 2.2360679 + w, -1), z)",
            f32(2, 3, 5),
            f32(2, 4, 5),
            f32(2, 4, 7),
            values([[0, 0, -10000, 0], [0, 0, 0, -10000], [0, -10000, 0, 0]]),
        ),
    ]
