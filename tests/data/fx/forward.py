class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[8, 4][4, 1]cuda:0",  # ParamAOTInput(target='linear.weight')
        primals_2: "f32[8][1]cuda:0",  # ParamAOTInput(target='linear.bias')
        primals_3: "Sym(2)",  # PlainAOTInput(idx=0)
        primals_4: "bf16[2, 4][4, 1]cuda:0",  # PlainAOTInput(idx=1)
    ):
        # File: /home/me/model.py:12 in forward, code: x = self.linear(x.float())  # it's "exact"
        _tensor_constant0: "f32[][]cpu" = self._tensor_constant0;  _tensor_constant0 = None
        convert_element_type: "f32[2, 4][4, 1]cuda:0" = torch.ops.prims.convert_element_type.default(primals_4, torch.float32);  primals_4 = None
        permute: "f32[4, 8][1, 4]cuda:0" = torch.ops.aten.permute.default(primals_1, [1, 0]);  primals_1 = None
        addmm: "f32[2, 8][8, 1]cuda:0" = torch.ops.aten.addmm.default(primals_2, convert_element_type, permute);  primals_2 = permute = None

        # File: /home/me/model.py:13 in forward, code: return F.dropout(torch.cat([x, x]), 0.1)
        cat: "f32[4, 8][8, 1]cuda:0" = torch.ops.aten.cat.default([addmm, addmm]);  addmm = None
        inductor_seeds_default: "i64[1][1]cuda:0" = torch.ops.prims.inductor_seeds.default(1, device(type='cuda', index=0))
        inductor_lookup_seed_default: "i64[][]cuda:0" = torch.ops.prims.inductor_lookup_seed.default(inductor_seeds_default, 0);  inductor_seeds_default = None
        inductor_random_default: "f32[4, 8][8, 1]cuda:0" = torch.ops.prims.inductor_random.default([4, 8], inductor_lookup_seed_default, 'rand');  inductor_lookup_seed_default = None
        gt: "b8[4, 8][8, 1]cuda:0" = torch.ops.aten.gt.Scalar(inductor_random_default, 0.1);  inductor_random_default = None
        mul: "f32[4, 8][8, 1]cuda:0" = torch.ops.aten.mul.Tensor(gt, cat);  cat = None
        var_mean = torch.ops.aten.var_mean.correction(mul, [1], correction = 0, keepdim = True)
        getitem: "f32[4, 1][1, 1]cuda:0" = var_mean[0]
        getitem_1: "f32[4, 1][1, 1]cuda:0" = var_mean[1];  var_mean = None
        return (
            mul,  # PlainAOTOutput(idx=0)
            convert_element_type,  # SavedForBackwardsAOTOutput(idx=0)
            gt,  # SavedForBackwardsAOTOutput(idx=1)
        )
